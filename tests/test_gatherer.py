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


async def ticks(count: int = 10) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def test_another_flush_begins_only_when_as_many_wait_as_are_under_way() -> None:
    batches: list[list[int]] = []
    going_on = asyncio.Event()

    async def flush(items: Sequence[int]) -> list[int]:
        batches.append(list(items))
        await going_on.wait()
        return list(items)

    async def one(item: int) -> int:
        return item

    gatherer = Gatherer(flush, one, most=500, side_by_side=2)
    every = [asyncio.create_task(gatherer.put(number)) for number in range(3)]
    await ticks()
    every += [asyncio.create_task(gatherer.put(number)) for number in (3, 4)]
    await ticks()
    assert batches == [[0, 1, 2]]
    every += [asyncio.create_task(gatherer.put(5))]
    await ticks()
    assert batches == [[0, 1, 2], [3, 4, 5]]
    every += [asyncio.create_task(gatherer.put(number)) for number in range(6, 16)]
    await ticks()
    assert len(batches) == 2
    going_on.set()
    async with asyncio.timeout(5):
        assert await asyncio.gather(*every) == list(range(16))
    assert batches[2] == list(range(6, 16))


async def test_who_is_tried_alone_holds_up_nobody_who_comes_later() -> None:
    released = asyncio.Event()

    async def flush(items: Sequence[str]) -> list[str]:
        if "stuck" in items:
            raise TimeoutError
        return list(items)

    async def one(item: str) -> str:
        if item == "stuck":
            await released.wait()
        return item

    gatherer = Gatherer(flush, one, most=500, side_by_side=2)
    first = [asyncio.create_task(gatherer.put(item)) for item in ("stuck", "beside", "with it")]
    async with asyncio.timeout(5):
        assert await asyncio.gather(*first[1:]) == ["beside", "with it"]
        assert await gatherer.put("later") == "later"
        released.set()
        assert await first[0] == "stuck"


async def test_those_who_came_together_come_again_in_two_halves_so_that_flushes_overlap() -> None:
    batches: list[list[int]] = []
    both = asyncio.Event()

    async def flush(items: Sequence[int]) -> list[int]:
        batches.append(list(items))
        if len(batches) == 3:
            both.set()
        if len(batches) > 1:
            await both.wait()
        return list(items)

    async def one(item: int) -> int:
        return item

    gatherer = Gatherer(flush, one, most=500, side_by_side=2)

    async def twice(number: int) -> None:
        await gatherer.put(number)
        await gatherer.put(number)

    async with asyncio.timeout(5):
        await asyncio.gather(*(twice(number) for number in range(8)))
    assert batches == [list(range(8)), [0, 1, 2, 3], [4, 5, 6, 7]]
