"""Handlers that are `def`: each attempt runs in a thread of its own.

There are never more of them than the worker has slots, because an attempt keeps its slot until its thread has returned. A
thread cannot be stopped from outside. When its attempt is (canceled, lease lost, life over), `ctx.sync` refuses from then on,
the lease is not renewed any more, the outcome is refused, and the slot stays taken until the thread returns. Only a process
that ends does not wait: the threads are daemons and end with it.
"""

import asyncio
import contextvars
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from deedbox.extend.sync_context import Bridge
from deedbox.model.failure import ActionFailure


async def in_thread(call: Callable[[], Any], bridge: Bridge, *, name: str, waits: Callable[[], bool]) -> Any:
    """What `call` answers or raises, from a daemon thread with this task's context variables.

    A cancellation closes the bridge at once; it is let through when the thread has returned, or right away where `waits`
    says that nobody has the time, or at a second cancellation. Raises ActionFailure (overloaded) where no thread can start.
    """
    loop = asyncio.get_running_loop()
    returned: asyncio.Future[None] = loop.create_future()
    ends: list[tuple[Any, BaseException | None]] = []
    context = contextvars.copy_context()

    def tell() -> None:
        if not returned.done():
            returned.set_result(None)

    def body() -> None:
        try:
            ends.append((context.run(call), None))
        except BaseException as error:  # noqa: BLE001 -- raised again where it is waited for
            ends.append((None, error))
        with suppress(RuntimeError):  # the loop is closed, and nobody waits
            loop.call_soon_threadsafe(tell)

    try:
        threading.Thread(target=body, name=name, daemon=True).start()
    except RuntimeError as error:
        raise ActionFailure("overloaded", "no_thread", "The worker could not start another thread.") from error
    try:
        await asyncio.shield(returned)
    except asyncio.CancelledError:
        bridge.close()
        if waits():
            await asyncio.shield(returned)
        raise
    [(value, error)] = ends
    if error is not None:
        raise error
    return value
