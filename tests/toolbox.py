"""Tools over a real database, with the stations of the road around them: what tests of the contract stand on."""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal
from uuid import UUID

from pydantic import BaseModel, Field

from deedbox.dispatch.loop import Dispatcher
from deedbox.extend.context import Context
from deedbox.extend.contract import Reason
from deedbox.extend.registry import App
from deedbox.gate.decide import decide
from deedbox.model.backoff import Retry
from deedbox.model.failure import ActionFailure
from deedbox.model.identity import Principal
from deedbox.model.policy import allow, deny, hold
from deedbox.operate.follow import Follow
from deedbox.operate.tools import Envelope, ToolCall, Tools
from deedbox.operate.verbs import Verbs
from deedbox.operate.views import Views
from deedbox.store import switch
from deedbox.store.transaction import transaction
from deedbox.store.wakeup import Wakeup
from tests.builders import ScriptedConnector
from tests.database import TestDatabase
from tests.road import Road, principal, road, until

Short = Annotated[str, Field(max_length=200)]


class Order(BaseModel):
    """What is looked for."""

    order_id: str = Field(min_length=2, max_length=40)
    detail: Literal["short", "long"] = "short"
    note: str | None = Field(default=None, max_length=100)
    tags: list[Short] = Field(default_factory=list[str], max_length=5)
    role: str | None = Field(default=None, max_length=40)


class Status(BaseModel):
    """What was found."""

    order_id: Short
    state: Short
    text: str = Field(default="", max_length=100_000)


class Lead(BaseModel):
    """What is to be made."""

    name: str = Field(min_length=1, max_length=100)
    size: int = Field(default=1, ge=1, le=9)


class Made(BaseModel):
    """What was planned."""

    name: Short


@dataclass
class Play:
    """What the handlers do, and how often they ran."""

    runs: list[str] = field(default_factory=list[str])
    fails: deque[Exception] = field(default_factory=deque[Exception])
    go: asyncio.Event = field(default_factory=asyncio.Event)
    length: int = 0
    plans: bool = False
    """Whether the action that reads tries to plan an effect."""


def toolbox_app(play: Play, connector: ScriptedConnector) -> App:  # noqa: C901 -- seven actions, each a few lines
    """Actions that read, that act and are held, that act in two parts, and that call others."""
    app = App(connectors=[connector])

    def began(name: str) -> None:
        play.runs.append(name)
        if play.fails:
            raise play.fails.popleft()

    @app.action(roles=["viewer", "operator"], policy=allow(), consequence="read", tool=True, object_id="order_id", version=2)
    async def get_status(ctx: Context, order: Order) -> Status:
        """Say how an order stands."""
        began("get_status")
        if play.plans:
            ctx.effect("note", target="crm", slot="sly", payload={"order": order.order_id})
        if order.order_id == "none":
            raise ActionFailure("caller_error", "order_not_found", "There is no order of this number.")
        return Status(order_id=order.order_id, state="open", text="x" * play.length)

    @app.action(
        roles=["operator"], approvers=["manager"], policy=hold(), tool=True, retry=Retry(attempts=3, base="30s", cap="60s")
    )
    async def create_lead(ctx: Context, lead: Lead) -> Made:
        """Make a lead."""
        began("create_lead")
        ctx.effect("note", target="crm", slot="lead", payload={"name": lead.name})
        return Made(name=lead.name)

    @app.action(roles=["operator"], approvers=["manager"], policy=hold(), tool=True)
    async def create_pair(ctx: Context, lead: Lead) -> Made:
        """Make two things in two groups."""
        began("create_pair")
        ctx.effect("note", target="crm", slot="first", payload={"name": lead.name}, group="one")
        ctx.effect("note", target="crm", slot="second", payload={"name": lead.name}, group="two")
        return Made(name=lead.name)

    @app.action(roles=["manager"], policy=deny(), tool=True, task_error=True)
    async def draft_only(ctx: Context, lead: Lead) -> Made:
        """Draft and never act."""
        began("draft_only")
        ctx.effect("note", target="crm", slot="lead", payload={"name": lead.name})
        return Made(name=lead.name)

    @app.action(roles=["operator"], policy=allow(), key="new", tool=True, tool_calls=4)
    async def run_agent(ctx: Context, lead: Lead) -> Made:
        """Be a parent for as long as the test wants."""
        await ctx.progress(1, 4, "looking around")
        await play.go.wait()
        return Made(name=lead.name)

    @app.action(roles=["operator"], approvers=["manager"], policy=hold(), hold_input=True, tool=True)
    async def erase_lead(_ctx: Context, lead: Lead) -> Made:
        """Erase a lead once a person has looked at the arguments."""
        began("erase_lead")
        return Made(name=lead.name)

    @app.action(roles=["operator"], policy=allow(), tool=False)
    async def keep_inside(_ctx: Context, lead: Lead) -> Made:
        """Is not offered."""
        return Made(name=lead.name)

    return app


class Talk(BaseModel):
    """A conversation with its reason."""

    history: Annotated[list[Short], Reason("the last lines decide about the tone"), Field(max_length=5)]


@dataclass
class Toolbox:
    """The tools of one installation, and who calls them."""

    road: Road
    tools: Tools
    play: Play
    connector: ScriptedConnector
    viewer: Principal

    @property
    def database(self) -> TestDatabase:
        """The database behind it."""
        return self.road.database

    @property
    def operator(self) -> Principal:
        """A program with the role operator."""
        return self.road.caller

    @property
    def manager(self) -> Principal:
        """A person with the role manager."""
        return self.road.approver

    async def call(self, action: str, arguments: Any, *, who: Principal | None = None, **more: Any) -> Envelope:
        """Call as the operator, and wait long enough for what ends by itself."""
        given: dict[str, Any] = {"wait_s": 10.0} | more
        return await self.tools.call(who or self.operator, ToolCall(action, arguments, **given))

    async def turn(self, *, on: bool) -> None:
        """Turn the database's half of the switch."""
        async with transaction(self.road.pool) as connection:
            await switch.turn_root(connection, "acts", is_on=on, changed_by="test", reason="a test")

    def work(self) -> None:
        """Start a worker."""
        self.road.start(self.road.worker())

    def send(self) -> None:
        """Start a dispatcher with the environment's half on."""
        self.road.start(Dispatcher(self.road.pool, self.road.ids, {self.connector.name: self.connector}, environment_on=True))

    async def decide(self, job_id: str | None, choice: Literal["approve", "reject"], group: str | None = None) -> None:
        """Decide what waits of a job as the manager."""
        rows = await self.database.rows(
            "SELECT approval_id, encode(digest, 'hex') FROM deedbox.approval WHERE job_id = %s AND state = 'pending'"
            " AND (%s::text IS NULL OR group_name = %s)",
            job_id,
            group,
            group,
        )
        assert rows, "nothing waits for a person"
        for approval_id, digest in rows:
            await decide(
                self.road.pool,
                self.road.ids,
                self.manager,
                approval_id=UUID(str(approval_id)),
                digest_hex=str(digest),
                choice=choice,
                reason="not this one." if choice == "reject" else None,
                how="test",
            )

    async def row(self, audit_id: str) -> dict[str, Any]:
        """The line of the journal that an answer named."""
        names = (
            "status, subject, role, claimed_role, source, action, job_id, parent_job_id, attempt_id, approval_id, key_sha256,"
            " input_sha256, trace, caller_run, error_code, duration_ms, detail"
        )
        rows = await self.database.rows(f"SELECT {names} FROM deedbox.call WHERE call_id = %s", audit_id)  # noqa: S608 -- names from above
        assert len(rows) == 1, f"{len(rows)} lines for one call"
        return dict(zip([name.strip() for name in names.split(",")], rows[0], strict=True))

    async def parent(self, *, calls: int) -> str:
        """A job that runs, within which tools may be called as often as its action says."""
        assert self.road.app.actions["run_agent"].offer.calls == calls
        accepted = await self.road.submit("run_agent", {"name": "agent"}, "the-parent")
        await self.until_event(str(accepted.job_id), "job.progress")
        return str(accepted.job_id)

    async def cancel(self, job_id: str) -> None:
        """Cancel a job and wait until it has ended."""
        await self.tools.cancel(self.operator, job_id)
        await self.until("SELECT count(*) FROM deedbox.result WHERE job_id = %s", job_id)

    async def until(self, query: str, *given: object) -> None:
        """Look until a query counts one."""
        await until(lambda: self.database.value(query, *given), lambda seen: seen == 1)

    async def until_effect(self, state: str) -> None:
        """Wait until there is an effect in this state."""
        await self.until("SELECT count(*) FROM deedbox.effect WHERE state = %s", state)

    async def until_job(self, action: str) -> None:
        """Wait until there is a job of an action."""
        await self.until("SELECT count(*) FROM deedbox.job WHERE action = %s", action)

    async def until_event(self, job_id: str, event: str) -> None:
        """Wait until the job has had an event of a type."""
        await self.until("SELECT count(*) FROM deedbox.event WHERE job_id = %s AND type = %s", job_id, event)

    async def another_attempt(self, job_id: str) -> None:
        """Take the running attempt's lease away, so that another one begins."""
        await self.database.rows(
            "UPDATE deedbox.queue SET lease_until = deedbox.clock() - interval '1 hour' WHERE job_id = %s", job_id
        )

    async def jobs(self, action: str) -> int:
        """How many jobs of an action there are."""
        return int(str(await self.database.value("SELECT count(*) FROM deedbox.job WHERE action = %s", action)))


@asynccontextmanager
async def toolbox(database: TestDatabase) -> AsyncGenerator[Toolbox]:
    """Open the tools on a database, with a listener so that waits end at once."""
    play, connector = Play(), ScriptedConnector()
    async with road(database, toolbox_app(play, connector)) as one:
        wakeup = Wakeup(database.direct_url)
        listening = asyncio.create_task(wakeup.run())
        await wakeup.ready()
        views = Views(one.pool, one.app.actions)
        tools = Tools(
            one.pool,
            one.ids,
            one.app.actions,
            intake=one.intake,
            views=views,
            follow=Follow(views, wakeup),
            verbs=Verbs(one.pool, one.ids, one.app.connectors),
            public_url="https://deeds.example",
        )
        viewer = await principal(database, one.ids, "viewer", "person", "viewer")
        try:
            yield Toolbox(one, tools, play, connector, viewer)
        finally:
            play.go.set()
            await tools.drain()
            listening.cancel()
            await asyncio.gather(listening, return_exceptions=True)
