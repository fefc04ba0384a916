"""The context's calls for code that runs in a thread: each waits there for what runs on the event loop."""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from concurrent import futures
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import BaseModel

from deedbox.extend.document import Document
from deedbox.model.failure import ActionFailure

if TYPE_CHECKING:
    from deedbox.extend.agents import AgentLimits, Tool
    from deedbox.extend.context import Context

T = TypeVar("T")
M = TypeVar("M", bound=BaseModel)
Hop = Callable[[Callable[[], Any]], Awaitable[Any]]
"""Runs a function in the thread that waits, and gives its answer to the event loop."""


class Bridge:
    """Between the threads of one attempt and the event loop its context lives on. Made on that loop."""

    def __init__(self) -> None:
        """Raises RuntimeError where no event loop runs."""
        self._loop = asyncio.get_running_loop()
        self._home = threading.get_ident()
        self._lock = threading.Lock()
        self._waiting: set[futures.Future[Any]] = set()
        self._closed = False

    def close(self) -> None:
        """End every call that waits and refuse all later ones: the attempt has ended or was stopped."""
        with self._lock:
            self._closed = True
            waiting = list(self._waiting)
        for future in waiting:
            future.cancel()

    def wait(self, call: Callable[[Hop], Coroutine[Any, Any, T]]) -> T:
        """Run what `call` makes on the event loop and wait for it in this thread.

        Raises what it raises; ActionFailure (lost) once the bridge is closed, (bug) on the event loop's own thread, which
        would wait for itself.
        """
        if threading.get_ident() == self._home:
            raise ActionFailure("bug", "sync_on_loop", "ctx.sync is for threads; on the event loop, await the call itself.")
        inbox: SimpleQueue[Callable[[], None] | None] = SimpleQueue()

        async def hop(run: Callable[[], Any]) -> Any:
            answered: asyncio.Future[Callable[[], Any]] = self._loop.create_future()
            inbox.put(lambda: self._run_here(run, answered))
            return (await answered)()

        with self._lock:
            if self._closed:
                raise _stopped()
            future = asyncio.run_coroutine_threadsafe(call(hop), self._loop)
            self._waiting.add(future)
        future.add_done_callback(lambda _: inbox.put(None))
        try:
            while (work := inbox.get()) is not None:
                work()
            return future.result()
        except futures.CancelledError:
            raise _stopped() from None
        finally:
            with self._lock:
                self._waiting.discard(future)

    def _run_here(self, run: Callable[[], Any], answered: "asyncio.Future[Callable[[], Any]]") -> None:
        """Run it and hand its end over as a function that answers or raises the same."""
        try:
            value = run()
        except BaseException as error:  # noqa: BLE001 -- raised again on the other side
            failed = error

            def end() -> Any:
                raise failed
        else:

            def end() -> Any:
                return value

        def tell() -> None:
            if not answered.done():
                answered.set_result(end)

        self._loop.call_soon_threadsafe(tell)


def _stopped() -> ActionFailure:
    return ActionFailure("lost", "attempt_stopped", "The attempt was stopped while it ran.")


class SyncContext:
    """`ctx.sync`: the calls of a Context for handlers that are `def`, and for threads of any handler.

    Each call waits for its answer. Once the attempt is stopped every call raises ActionFailure, those that wait included.
    """

    def __init__(self, context: "Context", bridge: Bridge) -> None:
        """Made by `Context.sync`."""
        self._context = context
        self._bridge = bridge

    def document(self, document: Document) -> bytes:
        """As Context.document."""
        return self._bridge.wait(lambda _: self._context.document(document))

    def read(self, target: str, path: str) -> Any:
        """As Context.read."""
        return self._bridge.wait(lambda _: self._context.read(target, path))

    def step(self, name: str, run: Callable[[], T], *, given: Any = None) -> T:
        """As Context.step; `run` is called in this thread."""
        return self._bridge.wait(lambda hop: self._context.step(name, lambda: hop(run), given=given))

    def progress(self, step: int, total_steps: int, message: str = "") -> None:
        """As Context.progress."""
        self._bridge.wait(lambda _: self._context.progress(step, total_steps, message))

    def partial(self, value: Any) -> None:
        """As Context.partial."""
        self._bridge.wait(lambda _: self._context.partial(value))

    def model(
        self,
        output: type[M],
        prompt: str,
        *,
        instructions: str | None = None,
        endpoint: str | None = None,
        prompt_version: str | None = None,
        draft: bool = False,
    ) -> M:
        """As Context.model."""
        return self._bridge.wait(
            lambda _: self._context.model(
                output, prompt, instructions=instructions, endpoint=endpoint, prompt_version=prompt_version, draft=draft
            )
        )

    def agent(
        self,
        output: type[M],
        prompt: str,
        *,
        tools: "Sequence[Tool]",
        instructions: str | None = None,
        name: str = "agent",
        endpoint: str | None = None,
        limits: "AgentLimits | None" = None,
        draft: bool = False,
    ) -> M:
        """As Context.agent."""
        return self._bridge.wait(
            lambda _: self._context.agent(
                output,
                prompt,
                tools=tools,
                instructions=instructions,
                name=name,
                endpoint=endpoint,
                limits=limits,
                draft=draft,
            )
        )
