"""Who holds an API key, with a memory of two seconds so that a busy caller costs one look-up and not thousands."""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from functools import partial
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
        self._asked: dict[bytes, tuple[float, asyncio.Future[Principal | None]]] = {}

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

    async def ask(self, key_sha256: bytes, look_up: Callable[[], Awaitable[Principal | None]]) -> Principal | None:
        """The answer of a look-up, shared by all who ask for the same key while it is under way.

        Nobody shares one that began two seconds ago or more: no answer is older than one that is remembered. Where it fails,
        or whoever began it goes away, each of the others looks up for itself.
        """
        now = monotonic()
        asked = self._asked.get(key_sha256)
        if asked is not None and now < asked[0] + REMEMBER_S:
            await asyncio.wait([asked[1]])
            if not asked[1].cancelled():
                return asked[1].result()
            now = monotonic()
        answer: asyncio.Future[Principal | None] = asyncio.get_running_loop().create_future()
        mine = self._asked[key_sha256] = (now, answer)
        try:
            principal = await look_up()
            answer.set_result(principal)
        finally:
            answer.cancel()
            if self._asked.get(key_sha256) is mine:
                del self._asked[key_sha256]
        self.put(key_sha256, principal, now)
        return principal


async def resolve_key(pool: Pool, bearer: str, cache: KeyCache | None = None) -> Principal | None:
    """The service that holds the key, or None for one that is unknown, revoked, expired or of a disabled service.

    Every key takes the same road: hash, cache, look-up by hash. No part of the key is compared or told apart before.
    """
    key_sha256 = digest(bearer[:_LONGEST_KEY])
    if cache is None:
        return await _look_up(pool, key_sha256)
    remembered = cache.get(key_sha256)
    return remembered[0] if remembered is not None else await cache.ask(key_sha256, partial(_look_up, pool, key_sha256))


async def _look_up(pool: Pool, key_sha256: bytes) -> Principal | None:
    async with autocommit(pool) as connection:
        holder = await store.resolve_key(connection, key_sha256)
    if holder is None:
        return None
    return Principal(str(holder.principal_id), holder.tenant, holder.name, "service", holder.roles, "api_key")
