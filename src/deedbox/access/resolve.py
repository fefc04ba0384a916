"""Who holds an API key, with a memory of two seconds so that a busy caller costs one look-up and not thousands."""

from collections import OrderedDict
from time import monotonic

from deedbox.access.keys import digest
from deedbox.model.identity import Principal
from deedbox.store import access as store
from deedbox.store.pool import Pool
from deedbox.store.transaction import autocommit

REMEMBER_S = 2.0
_MOST = 4096
_LONGEST_KEY = 512


class KeyCache:
    """Answers of the last two seconds by the key's hash, good and bad alike, at most a few thousand of them.

    A revoked key may be believed for that long by a process that has just seen it.
    """

    def __init__(self) -> None:
        """Nothing is remembered yet."""
        self._known: OrderedDict[bytes, tuple[float, Principal | None]] = OrderedDict()

    def get(self, key_sha256: bytes) -> tuple[Principal | None] | None:
        """The remembered answer in a tuple of one, or None when there is none."""
        entry = self._known.get(key_sha256)
        if entry is None or entry[0] <= monotonic():
            return None
        return (entry[1],)

    def put(self, key_sha256: bytes, principal: Principal | None, read_at: float) -> None:
        """Remember an answer for two seconds after `read_at` (monotonic), the moment before it was read."""
        self._known[key_sha256] = (read_at + REMEMBER_S, principal)
        self._known.move_to_end(key_sha256)
        while len(self._known) > _MOST:
            self._known.popitem(last=False)


async def resolve_key(pool: Pool, bearer: str, cache: KeyCache | None = None) -> Principal | None:
    """The service that holds the key, or None for one that is unknown, revoked, expired or of a disabled service.

    Every key takes the same road: hash, cache, look-up by hash. No part of the key is compared or told apart before.
    """
    key_sha256 = digest(bearer[:_LONGEST_KEY])
    if cache is not None:
        remembered = cache.get(key_sha256)
        if remembered is not None:
            return remembered[0]
    read_at = monotonic()
    async with autocommit(pool) as connection:
        holder = await store.resolve_key(connection, key_sha256)
    principal = (
        None
        if holder is None
        else Principal(str(holder.principal_id), holder.tenant, holder.name, "service", holder.roles, "api_key")
    )
    if cache is not None:
        cache.put(key_sha256, principal, read_at)
    return principal
