"""`subscriptions/listen`: what becomes of tasks and jobs, told as it happens, from whichever process it comes.

Nothing is replayed: the state comes first, then each change of it. The one connection of the process that listens makes a look
earlier; a look every second or so makes up for what was lost.
"""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any, cast
from uuid import UUID

from mcp.server.subscriptions import SUBSCRIPTION_ID_META_KEY
from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_REQUEST, RequestId, SubscriptionsListenRequestParams, SubscriptionsListenResult

from deedbox.mcp.context import Ctx, exchange_of, principal_of, request_of, require_tasks
from deedbox.mcp.deps import McpDeps
from deedbox.mcp.resources import job_of
from deedbox.mcp.tasks import TaskId, Tasks
from deedbox.model.identity import Principal
from deedbox.operate.follow import Signal

POLL_S = 2.0
ASK_AGAIN_S = 15.0
"""How often a stream looks whether its caller may still see what it tells, in seconds."""
MOST = 100
"""How many tasks and resources one stream follows."""
_OVER = frozenset({"completed", "failed", "cancelled"})


class Listening:
    """The handler of subscriptions."""

    def __init__(self, deps: McpDeps, tasks: Tasks) -> None:
        """`tasks` tells of each."""
        self._deps = deps
        self._tasks = tasks

    async def listen(self, ctx: Ctx, params: SubscriptionsListenRequestParams) -> SubscriptionsListenResult:
        """Follow what was asked for until the caller goes, all of it is over, or the server stops."""
        if ctx.request_id is None:
            raise MCPError(INVALID_REQUEST, "subscriptions/listen needs an id")
        meta = {SUBSCRIPTION_ID_META_KEY: ctx.request_id}
        task_ids = await self._mine(ctx, (params.notifications.model_extra or {}).get("taskIds"))
        jobs = await self._readable(ctx, params.notifications.resource_subscriptions)
        async with AsyncExitStack() as stack:
            # Subscribed before the first look: what happens in between is seen.
            signals = [
                await stack.enter_async_context(self._deps.wakeup.job(job_id))
                for job_id in {*(task.job_id for task in task_ids), *jobs.values()}
            ]
            await self._acknowledge(ctx, task_ids, list(jobs), meta)
            told: dict[str, Any] = {}
            async for _ in self._looks(ctx, signals):
                over = await self._tell_tasks(ctx, task_ids, told, meta)
                over = await self._tell_jobs(ctx, jobs, told, meta) and over
                if over and (task_ids or jobs):
                    break
        return SubscriptionsListenResult.model_validate({"_meta": meta})

    async def _mine(self, ctx: Ctx, asked: object) -> list[TaskId]:
        """The tasks that are the caller's among those asked for; the others are left out without a word."""
        if asked is None:
            return []
        require_tasks(ctx)
        listed = cast("list[object]", asked)[:MOST] if isinstance(asked, list) else []
        wanted = [TaskId.of(str(one)) for one in listed]
        return [task for task in wanted if task is not None and await self._tasks.shown(ctx, task) is not None]

    async def _readable(self, ctx: Ctx, asked: list[str] | None) -> dict[str, UUID]:
        found: dict[str, UUID] = {}
        for uri in (asked or [])[:MOST]:
            job_id = job_of(uri)
            if job_id is not None and await self._deps.views.pulse(principal_of(ctx), job_id) is not None:
                found[uri] = job_id
        return found

    async def _acknowledge(self, ctx: Ctx, tasks: list[TaskId], uris: list[str], meta: dict[str, RequestId]) -> None:
        agreed: dict[str, Any] = {}
        agreed |= {"taskIds": [str(task) for task in tasks]} if tasks else {}
        agreed |= {"resourceSubscriptions": uris} if uris else {}
        await exchange_of(ctx).notify("notifications/subscriptions/acknowledged", {"notifications": agreed, "_meta": meta})

    async def _looks(self, ctx: Ctx, signals: list[Signal]) -> AsyncIterator[None]:
        """Once at first, then whenever something may be new, and now and then, as long as the caller's key is good."""
        stopped = asyncio.ensure_future(self._deps.stopping.wait())
        asked = time.monotonic()
        try:
            while not stopped.done():
                if time.monotonic() - asked > ASK_AGAIN_S:
                    # A stream outlives no revocation by much.
                    if not isinstance(await self._deps.who(request_of(ctx)), Principal):
                        return
                    asked = time.monotonic()
                yield
                waits = [asyncio.ensure_future(signal.wait(POLL_S)) for signal in signals] or [_sleep(POLL_S)]
                try:
                    await asyncio.wait({*waits, stopped}, return_when=asyncio.FIRST_COMPLETED)
                finally:
                    for wait in waits:
                        wait.cancel()
                    await asyncio.gather(*waits, return_exceptions=True)
        finally:
            stopped.cancel()

    async def _tell_tasks(self, ctx: Ctx, tasks: list[TaskId], told: dict[str, Any], meta: dict[str, RequestId]) -> bool:
        """Tell each task that changed; returns whether all of them are over."""
        over = True
        for task in tasks:
            pulse, shown = told.get(str(task), (None, None))
            now = await self._deps.views.pulse(principal_of(ctx), task.job_id)
            # Whom a client was asked about changes without an event; everything else has one.
            if now is not None and (now != pulse or now[0] == "awaiting_human"):
                before, shown = shown, await self._tasks.shown(ctx, task)
                told[str(task)] = (now, shown)
                if shown is not None and shown != before:
                    await exchange_of(ctx).notify("notifications/tasks", {**shown, "_meta": meta})
            over = over and (shown is None or shown["status"] in _OVER)
        return over

    async def _tell_jobs(self, ctx: Ctx, jobs: dict[str, UUID], told: dict[str, Any], meta: dict[str, RequestId]) -> bool:
        """Say of each job that changed that it did; it is read to know how. Never over: a job may have another round."""
        for uri, job_id in jobs.items():
            pulse = await self._deps.views.pulse(principal_of(ctx), job_id)
            before = told.get(uri)
            told[uri] = pulse
            if before is not None and pulse is not None and pulse != before:
                await exchange_of(ctx).notify("notifications/resources/updated", {"uri": uri, "_meta": meta})
        return not jobs


def _sleep(seconds: float) -> "asyncio.Future[Any]":
    return asyncio.ensure_future(asyncio.sleep(seconds))
