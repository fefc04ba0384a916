"""Telling a caller how far its job is while its call waits: only where it gave a token for that, and never needed."""

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any
from uuid import UUID

from deedbox.mcp.context import Ctx, exchange_of, principal_of
from deedbox.model.errors import DeedboxError
from deedbox.operate.follow import Follow
from deedbox.operate.job_view import Event
from deedbox.operate.views import AWAY

_QUIET_S = 3600.0
_REST_S = 0.5


class Telling:
    """What is told while a call waits; `task` is None where nobody asked to be told."""

    def __init__(self, task: "asyncio.Task[None] | None") -> None:
        """The task ends by itself once all of a job that is over was told."""
        self._task = task

    async def rest(self) -> None:
        """Wait a moment for what a job that is over has still to tell: it may have ended sooner than the first look."""
        if self._task is not None:
            await asyncio.wait({self._task}, timeout=_REST_S)


class Following:
    """Follows jobs for calls that wait."""

    def __init__(self, follow: Follow, stopping: asyncio.Event) -> None:
        """`stopping` ends what is told."""
        self._follow = follow
        self._stopping = stopping

    @asynccontextmanager
    async def told(self, ctx: Ctx, job_id: str | None, after: int = 0) -> AsyncGenerator["Telling"]:
        """While the context is open, events of the job reach a caller with a token as progress."""
        if exchange_of(ctx).progress_token is None or job_id is None:
            yield Telling(None)
            return
        telling = asyncio.create_task(self._tell(ctx, job_id, after))
        try:
            yield Telling(telling)
        finally:
            telling.cancel()
            await asyncio.gather(telling, return_exceptions=True)

    async def _tell(self, ctx: Ctx, job_id: str, after: int) -> None:
        with suppress(ValueError, DeedboxError, *AWAY):
            follow = self._follow.events(principal_of(ctx), UUID(job_id), after, quiet_s=_QUIET_S, until=self._stopping.is_set)
            told = -1.0
            async for page in follow:
                for event in page.events:
                    said = progress_of(event)
                    if said is not None and said[0] > told:
                        told = said[0]
                        await exchange_of(ctx).progress(*said)


def progress_of(event: Event) -> tuple[float, float | None, str | None] | None:
    """What an event says of progress: how far, of how much, and in words; None where it says nothing of it.

    The protocol wants each to be further than the one before, so an event's number counts where the job names no steps.
    """
    if event.type != "job.progress":
        return None
    payload: Mapping[str, Any] = event.payload
    step, total = payload.get("step"), payload.get("total_steps")
    message = payload.get("message")
    return (
        float(step) if isinstance(step, int | float) else float(event.seq),
        float(total) if isinstance(total, int | float) else None,
        None if message is None else str(message),
    )
