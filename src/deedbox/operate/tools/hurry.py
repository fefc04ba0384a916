"""A wait that ends early where its server is about to stop."""

import asyncio
from collections.abc import Awaitable, Callable

from deedbox.operate.job_view import JobView, Outcome


async def or_now(
    asked: "asyncio.Future[JobView | Outcome | None]", hurry: asyncio.Event | None, now: Callable[[], Awaitable[JobView | None]]
) -> JobView | Outcome | None:
    """What was asked for, or how it stands now where there is no time to wait for that."""
    stopped = None if hurry is None else asyncio.ensure_future(hurry.wait())
    try:
        await asyncio.wait({asked} if stopped is None else {asked, stopped}, return_when=asyncio.FIRST_COMPLETED)
        return asked.result() if asked.done() else await now()
    finally:
        asked.cancel()
        if stopped is not None:
            stopped.cancel()
        await asyncio.gather(asked, *(() if stopped is None else (stopped,)), return_exceptions=True)
