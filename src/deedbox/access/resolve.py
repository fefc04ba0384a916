"""Who holds an API key, with a memory of two seconds so that a busy caller costs one look-up and not thousands."""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from functools import partial
from time import monotonic

from deedbox.access.keys import clean_name, digest, usable_name
from deedbox.model.identity import DECIDE_SCOPE, FORM_SCOPE, FormKey, Principal, Through
from deedbox.store import keys as store
from deedbox.store.pool import Pool
from deedbox.store.transaction import autocommit

REMEMBER_S = 2.0
_MOST = 4096
_LONGEST_KEY = 512
_DOTS = 2


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

    def forget(self) -> None:
        """Remember nothing: whoever comes next is looked up."""
        self._known.clear()

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


def looks_signed(bearer: str) -> bool:
    """Whether it has the form of a signed access token (deedbox.access.bearer); our own keys and sessions never have."""
    return bearer.startswith("ey") and bearer.count(".") == _DOTS


async def resolve_key(pool: Pool, bearer: str, cache: KeyCache | None = None) -> Principal | None:
    """Who holds the key, with no more than the key's scope; None for one that is unknown, over, or of somebody disabled.

    Every key takes the same road: hash, cache, look-up by hash. No part of the key is compared or told apart before.
    """
    key_sha256 = digest(bearer[:_LONGEST_KEY])
    return await remembered(cache, key_sha256, partial(_look_up, pool, key_sha256))


async def resolve_acting(pool: Pool, bearer: str, name: str, cache: KeyCache | None = None) -> Principal | None:
    """The person of that name, for whom the service that holds the key calls; with the roles and verbs that both hold.

    None where the key has no right to act for others, and for a person who is unknown, disabled or of another tenant: nobody
    can tell these apart. It stays a service's call: nothing that takes a person is done in this way.
    """
    key_sha256, name = digest(bearer[:_LONGEST_KEY]), clean_name(name)
    if not usable_name(name):
        return None
    return await remembered(cache, digest(f"{key_sha256.hex()} {name}"), partial(_look_up_acting, pool, key_sha256, name))


async def remembered(
    cache: KeyCache | None, place: bytes, look_up: Callable[[], Awaitable[Principal | None]]
) -> Principal | None:
    """The answer that is kept at this place of the cache, or else the look-up's, which is kept there."""
    if cache is None:
        return await look_up()
    remembered = cache.get(place)
    return remembered[0] if remembered is not None else await cache.ask(place, look_up)


async def _look_up(pool: Pool, key_sha256: bytes) -> Principal | None:
    async with autocommit(pool) as connection:
        holder = await store.resolve(connection, key_sha256)
    if holder is None:
        return None
    who = (str(holder.principal_id), holder.tenant, holder.name)
    if holder.kind == "personal":
        return Principal(*who, "person", holder.roles, "personal_key", verbs=holder.verbs & DECIDE_SCOPE)
    if holder.kind == "form":
        form = FormKey(str(holder.key_id), holder.action or "", holder.origins)
        return Principal(*who, "service", holder.roles, "form_key", verbs=holder.verbs & FORM_SCOPE, form=form)
    return Principal(*who, "service", holder.roles, "api_key", verbs=holder.verbs)


async def _look_up_acting(pool: Pool, key_sha256: bytes, name: str) -> Principal | None:
    async with autocommit(pool) as connection:
        found = await store.acting(connection, key_sha256, name)
    if found is None:
        return None
    return Principal(
        str(found.principal_id),
        found.tenant,
        found.name,
        "service",
        found.roles,
        "api_key",
        verbs=found.verbs,
        through=Through(str(found.service_id), found.service),
    )
