"""Pauses between two turns of a loop: jittered, and over at once when the process is to stop."""

import asyncio
import random
from contextlib import suppress


async def pause(stop: asyncio.Event, seconds: float, *, least: float = 0.8) -> bool:
    """Wait up to `seconds`, or a part of it from `least` on, drawn anew each time; returns whether it is time to stop.

    The draw keeps processes that began together from asking the database together for ever.
    """
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds * random.uniform(least, 1.0)):  # noqa: S311 -- jitter
            await stop.wait()
    return stop.is_set()
