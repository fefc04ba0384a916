"""An item that is put just as a flush ends is flushed as well."""

import asyncio
from collections.abc import Sequence

import pytest

from deedbox.store.batch import Gatherer

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("ticks", range(8))
async def test_an_item_put_as_a_flush_ends_is_not_left_behind(ticks: int) -> None:
    async def flush(items: Sequence[str]) -> list[str]:
        return list(items)

    async def one(item: str) -> str:
        return item

    gatherer = Gatherer(flush, one, most=500)

    async def late() -> str:
        for _ in range(ticks):
            await asyncio.sleep(0)
        return await gatherer.put("late")

    async with asyncio.timeout(5):
        assert await asyncio.gather(gatherer.put("first"), late()) == ["first", "late"]
