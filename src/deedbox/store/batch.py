"""Gathering: concurrent requests of one process share a transaction.

While one flush is under way the others gather, and the next flush takes what waits, up to a cap. There is no timer, so
an idle process adds no latency.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

BREAKS_STEP = 4
"""A batch of so many is answered in two halves where nothing else is under way."""

Item = TypeVar("Item")
Answer = TypeVar("Answer")


class Gatherer(Generic[Item, Answer]):
    """Collects items and hands them to `flush` in batches; each caller gets its own answer or its own error.

    `flush` returns one answer per item, in order. When it raises, `one` is called for every item by itself, so that one
    bad row holds up only itself.
    """

    def __init__(
        self,
        flush: Callable[[Sequence[Item]], Awaitable[Sequence[Answer]]],
        one: Callable[[Item], Awaitable[Answer]],
        *,
        most: int,
        side_by_side: int = 1,
    ) -> None:
        """`most` items per flush; `side_by_side` flushes may be under way at once.

        Another one begins only when as many wait as are under way: else each takes the few that came since the last one
        began, and the cost of a flush is shared by few.
        """
        self._flush = flush
        self._one = one
        self._most = most
        self._side_by_side = side_by_side
        self._waiting: deque[tuple[Item, asyncio.Future[Answer]]] = deque()
        self._running: set[asyncio.Task[None]] = set()
        self._flushing = 0
        self._under_way = 0

    async def put(self, item: Item) -> Answer:
        """Wait until the item's transaction has committed, and return its answer. Raises what its own row raised."""
        future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._waiting.append((item, future))
        self._start()
        # A caller that goes away cancels its own future and no flush: the row stays in the one that others share.
        return await future

    @property
    def busy(self) -> bool:
        """Whether a flush is under way."""
        return self._flushing > 0

    async def drain(self) -> None:
        """Wait until nothing waits and nothing is under way."""
        while self._running:
            await asyncio.wait(list(self._running))

    def _start(self) -> None:
        if self._flushing >= self._side_by_side or len(self._waiting) < max(1, self._under_way):
            return
        self._flushing += 1
        task = asyncio.get_running_loop().create_task(self._run())
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    async def _run(self) -> None:
        try:
            while self._waiting:
                batch = [self._waiting.popleft() for _ in range(min(self._most, len(self._waiting)))]
                await self._settle(batch)
        finally:
            # Counted down here and not when the task is noticed to be done: an item put in between would wait for ever.
            self._flushing -= 1

    async def _settle(self, batch: list[tuple[Item, "asyncio.Future[Answer]"]]) -> None:
        self._under_way += len(batch)
        try:
            answers = await self._flush([item for item, _ in batch])
        except Exception:  # noqa: BLE001 -- whatever it was, each row is tried alone and keeps its own error
            answers = None
        finally:
            self._under_way -= len(batch)
        if answers is None:
            # That may take long, and those who wait have nothing to do with it.
            self._start()
            await asyncio.gather(*(self._alone(item, future) for item, future in batch))
            return
        answered = 0
        if self._side_by_side > 1 and not self._under_way and not self._waiting and len(batch) >= BREAKS_STEP:
            # All of them would come again at once, and this process and the database would work in turns for ever.
            answered = len(batch) // 2
            _answer(batch[:answered], answers[:answered])
            await asyncio.sleep(0)
        _answer(batch[answered:], answers[answered:])

    async def _alone(self, item: Item, future: "asyncio.Future[Answer]") -> None:
        try:
            answer = await self._one(item)
        except Exception as error:  # noqa: BLE001 -- handed to the caller that waits
            _fail(future, error)
        else:
            if not future.done():
                future.set_result(answer)


def _answer(batch: "Sequence[tuple[Item, asyncio.Future[Answer]]]", answers: Sequence[Answer]) -> None:
    for (_, future), answer in zip(batch, answers, strict=True):
        if not future.done():
            future.set_result(answer)


def _fail(future: "asyncio.Future[Answer]", error: Exception) -> None:
    if not future.done():
        future.set_exception(error)
