"""A worker whose agents call the tools of one installation, and what tests look at."""

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any
from uuid import UUID

from deedbox.model.policy import hold
from deedbox.operate.child_tools import ChildTools
from deedbox.operate.follow import Follow
from deedbox.operate.tools import Tools
from deedbox.operate.verbs import Verbs
from deedbox.operate.views import Views
from deedbox.worker.model_call import ModelEndpoint
from tests.apps.agent import app, note
from tests.database import TestDatabase
from tests.modelled import asking, start
from tests.road import Road, road
from tests.servers.openai_endpoint import Reply

ANSWER = {"text": "It is on its way.", "done": True}
VALID = Reply(json.dumps(ANSWER))
COUNT = ("count_order", {"order_id": "4711"})
NOTE = ("send_note", {"text": "Call back."})


@asynccontextmanager
async def agency(database: TestDatabase, at: ModelEndpoint, *, slots: int = 4) -> AsyncGenerator[Road]:
    """A worker whose agents call the tools of one installation."""
    assert hold
    note.sent.clear()
    note.script.clear()
    async with asking(at) as client, road(database, app) as one:
        views = Views(one.pool, app.actions)
        tools = Tools(
            one.pool,
            one.ids,
            app.actions,
            intake=one.intake,
            views=views,
            follow=Follow(views, poll_s=0.05),
            verbs=Verbs(one.pool, one.ids, app.connectors),
            public_url="https://deeds.example",
        )
        start(one, client, slots=slots, calls=ChildTools(one.pool, one.ids, tools), lease_s=20)
        try:
            yield one
        finally:
            await one.stop_all()
            await tools.drain()


async def ran(one: Road, given: dict[str, Any], *states: str) -> tuple[UUID, str]:
    """Submit to the agent and wait for its end."""
    job = await one.submit("answer_customer", given)
    ends = states or ("completed", "failed_terminal", "failed_retryable", "canceled")
    return job.job_id, await one.until(job.job_id, *ends, within=60)


async def children(database: TestDatabase, job_id: UUID) -> list[tuple[str, str]]:
    rows = await database.rows(
        "SELECT j.action, coalesce(q.state, r.state) FROM deedbox.job j LEFT JOIN deedbox.queue q USING (job_id)"
        " LEFT JOIN deedbox.result r USING (job_id) WHERE j.parent_job_id = %s ORDER BY j.job_id",
        job_id,
    )
    return [(str(row[0]), str(row[1])) for row in rows]


async def result(database: TestDatabase, job_id: UUID) -> tuple[Any, ...]:
    rows = await database.rows("SELECT state, class, code, output FROM deedbox.result WHERE job_id = %s", job_id)
    return tuple(rows[0])
