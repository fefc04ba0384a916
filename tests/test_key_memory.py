"""Callers who ask for one key at the same moment: one look-up, and no answer older than one that is remembered."""

import asyncio

import pytest

from deedbox.access import KeyCache
from deedbox.model.identity import Principal

pytestmark = pytest.mark.anyio


async def test_who_asks_while_a_key_is_looked_up_shares_the_look_up():
    cache, go, asked = KeyCache(), asyncio.Event(), 0
    service = Principal("0197f2a8-0000-7000-8000-00000000b001", "default", "n8n", "service", frozenset(), "api_key")

    async def look_up() -> Principal | None:
        nonlocal asked
        asked += 1
        await go.wait()
        if asked == 1:
            raise ConnectionError
        return service

    async def all_ask() -> list["asyncio.Task[Principal | None]"]:
        asking = [asyncio.create_task(cache.ask(b"key", look_up)) for _ in range(20)]
        for _ in range(3):
            await asyncio.sleep(0)
        return asking

    # The first fails: only whoever began it hears so, and the others look up for themselves.
    asking = await all_ask()
    assert asked == 1
    go.set()
    with pytest.raises(ConnectionError):
        await asking[0]
    assert await asyncio.gather(*asking[1:]) == [service] * 19
    # The one that began goes away: nobody is left waiting.
    go.clear()
    asked = 1
    asking = await all_ask()
    assert asked == 2
    asking[0].cancel()
    go.set()
    assert await asyncio.gather(*asking[1:]) == [service] * 19
    # One answer for all, and it is remembered.
    go.clear()
    asked = 1
    asking = await all_ask()
    go.set()
    assert await asyncio.gather(*asking) == [service] * 20
    assert asked == 2
    assert cache.get(b"key") == (service,)
    assert cache.get(b"another") is None


async def test_a_look_up_that_began_too_long_ago_is_not_shared(monkeypatch: pytest.MonkeyPatch):
    cache, go, now = KeyCache(), asyncio.Event(), 100.0
    monkeypatch.setattr("deedbox.access.resolve.monotonic", lambda: now)

    async def first() -> Principal | None:
        await go.wait()
        return None

    async def second() -> Principal | None:
        raise LookupError

    began = asyncio.create_task(cache.ask(b"key", first))
    await asyncio.sleep(0)
    now += 1.9
    shared = asyncio.create_task(cache.ask(b"key", second))
    await asyncio.sleep(0)
    now += 0.1
    with pytest.raises(LookupError):
        await cache.ask(b"key", second)
    go.set()
    assert (await began, await shared) == (None, None)
    assert cache.get(b"key") is None
