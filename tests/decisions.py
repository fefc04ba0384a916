"""What tests of deciding stand on: people, an action of any consequence, and approvals put there by the gate itself."""

import asyncio
import json
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, cast
from uuid import UUID

from pydantic import BaseModel, ConfigDict

from deedbox.access import add_user
from deedbox.extend.context import Context, EffectPlan
from deedbox.extend.registry import App
from deedbox.gate.admit import Proposed, admit
from deedbox.gate.confirm import Confirmed
from deedbox.gate.decide import Decided, decide
from deedbox.gate.edit import Edited, edit
from deedbox.model.consequence import Consequence
from deedbox.model.fingerprint import effect_body
from deedbox.model.identity import Method, Principal
from deedbox.model.policy import Policy, hold
from deedbox.operate.approvals import Approvals
from deedbox.store.ids import IdSource
from deedbox.store.pool import Pool
from deedbox.store.transaction import transaction
from tests.builders import Outbox, ScriptedConnector, outbox_on
from tests.database import TestDatabase

PASSWORD = "correct horse, battery"


class Letter(BaseModel):
    """What the connector of these tests sends."""

    model_config = ConfigDict(extra="forbid")

    text: str
    amount: int | None = None
    to: list[str] = []


class Post(ScriptedConnector):
    """A connector whose payload has a model, and that refuses what does not belong to its target."""

    def check_plan(self, target: str, payload: Mapping[str, Any]) -> None:
        """Refuse a letter that names somebody else."""
        if payload.get("text") == "to nobody":
            raise ValueError(f"nothing goes to {target} that is for nobody")

    def describe(self, target: str, payload: Mapping[str, Any]) -> str:
        """A sentence."""
        return f"Writes {payload['text']!r} to {target}."


class Asked(BaseModel):
    """What the caller asks for."""

    text: str = ""


class Told(BaseModel):
    """The draft."""

    text: str = "drafted"


def make_app(
    consequence: Consequence = "consequential",
    *,
    policy: Policy | None = None,
    domain: str | None = None,
    domains: Mapping[str, str | None] | None = None,
) -> App:
    """One action whose effects the gate holds for managers."""
    app = App(connectors=[Post(name="post", payload_model=Letter)], domains=domains or {})

    @app.action(
        roles=["operator"],
        approvers=["manager"],
        policy=policy or hold(expires="1h"),
        consequence=consequence,
        domain=domain,
    )
    async def write_letter(_ctx: Context, _asked: Asked) -> Told:
        """Write a letter."""
        return Told()

    return app


@dataclass(frozen=True)
class Held:
    """An approval that waits."""

    approval_id: UUID
    digest: str
    job_id: UUID


@dataclass
class Desk:
    """People and approvals on one database."""

    box: Outbox
    app: App
    approvals: Approvals
    people: dict[str, Principal] = field(default_factory=dict[str, Principal])

    @property
    def pool(self) -> Pool:
        """The application's connections."""
        return self.box.pool

    @property
    def ids(self) -> IdSource:
        """The database's ids."""
        return self.box.ids

    @property
    def database(self) -> TestDatabase:
        """The database behind it."""
        return self.box.database

    async def person(self, name: str, *roles: str, kind: str = "person", password: bool = False) -> Principal:
        """Somebody with these roles, stored; with a password only where the test needs one."""
        if password:
            principal_id = await add_user(self.pool, self.ids, "default", name, roles, PASSWORD)
        else:
            principal_id = str(self.ids.new())
            await self.database.rows(
                "INSERT INTO deedbox.principal (principal_id, tenant, kind, name) VALUES (%s, 'default', %s, %s)",
                principal_id,
                kind,
                name,
            )
            await self.database.rows(
                'INSERT INTO deedbox."grant" (principal_id, role) SELECT %s, unnest(%s::text[])', principal_id, list(roles)
            )
        method: Method = "session" if kind == "person" else "api_key"
        made = Principal(principal_id, "default", name, "person" if kind == "person" else "service", frozenset(roles), method)
        self.people[name] = made
        return made

    async def hold(
        self, *payloads: Mapping[str, Any], subject: Principal | None = None, groups: Sequence[str] = ("default",)
    ) -> list[Held]:
        """A job that waits for people: an approval for each group, each with these payloads under slots of its own."""
        (action,) = self.app.actions.values()
        job = await self.box.build(state="awaiting_human", action=action.name)
        if subject is not None:
            await self.database.rows("UPDATE deedbox.job SET subject = %s WHERE job_id = %s", subject.principal_id, job.job_id)
        ctx = Context(job.job_id, 1, "default", None, self.app.connectors)  # pyright: ignore[reportArgumentType] -- only plans
        for group in groups:
            for number, payload in enumerate(payloads or ({"text": "hello"},), 1):
                ctx.effect("post", target="desk", slot=f"{group}-{number}", payload=payload, group=group)
        proposed = Proposed(
            job.job_id, self.ids.new(), "default", action, action.version, json.dumps({"text": "drafted"}), tuple(ctx.plans)
        )
        async with transaction(self.pool) as connection:
            found = await admit(connection, self.ids, proposed, outcome="hold")
        return [Held(approval_id, await self.digest(approval_id), job.job_id) for approval_id in found]

    async def one(self, *payloads: Mapping[str, Any], subject: Principal | None = None) -> Held:
        """A job with one approval that waits."""
        return (await self.hold(*payloads, subject=subject))[0]

    async def digest(self, approval_id: UUID) -> str:
        """What a person is shown of an approval."""
        value = await self.database.value(
            "SELECT encode(digest, 'hex') FROM deedbox.approval WHERE approval_id = %s", approval_id
        )
        return str(value)

    async def decide(
        self,
        who: Principal,
        held: Held,
        choice: str = "approve",
        *,
        how: str = "page",
        digest: str | None = "",
        reason: str | None = "because",
        confirmed: Confirmed | None = None,
    ) -> Decided:
        """Decide by the function that all doors call."""
        return await decide(
            self.pool,
            self.ids,
            who,
            approval_id=held.approval_id,
            digest_hex=held.digest if digest == "" else digest,
            choice=choice,
            reason=reason,
            how=how,
            confirmed=confirmed,
        )

    async def edit(self, who: Principal, held: Held, payloads: Mapping[str, Any], *, how: str = "page") -> Held:
        """Edit, and return what waits now."""
        done: Edited = await edit(
            self.pool,
            self.ids,
            who,
            connectors=self.app.connectors,
            actions=self.app.actions,
            approval_id=held.approval_id,
            digest_hex=held.digest,
            payloads=payloads,
            reason="a better word",
            how=how,
        )
        return Held(done.approval_id, done.digest.hex(), held.job_id)

    async def state(self, held: Held) -> str:
        """The approval's state."""
        return str(await self.database.value("SELECT state FROM deedbox.approval WHERE approval_id = %s", held.approval_id))

    async def now(self) -> datetime:
        """The database's clock."""
        return cast("datetime", await self.database.value("SELECT deedbox.clock()")).astimezone(UTC)

    async def traces(self) -> tuple[object, ...]:
        """All that a decision would have changed."""
        return (
            await self.database.rows(
                "SELECT (SELECT count(*) FROM deedbox.vote), (SELECT count(*) FROM deedbox.effect),"
                " (SELECT count(*) FROM deedbox.event), (SELECT count(*) FROM deedbox.delegation),"
                " (SELECT string_agg(approval_id || state, ',' ORDER BY approval_id) FROM deedbox.approval),"
                " (SELECT count(*) FROM deedbox.audit WHERE verb <> 'login_failed' AND verb NOT LIKE 'log%%')"
            )
        )[0]


@asynccontextmanager
async def decisions_on(database: TestDatabase, app: App | None = None) -> AsyncGenerator[Desk]:
    """Everything that decides, on a database; nothing is sent."""
    async with outbox_on(database) as box:
        app = app or make_app()
        approvals = Approvals(
            box.pool, box.ids, public_url="http://127.0.0.1:8484", connectors=app.connectors, actions=app.actions
        )
        yield Desk(box, app, approvals)


async def settled(*calls: Any) -> list[Any]:
    """All of them at once; what they raise is among what they return."""
    return await asyncio.gather(*calls, return_exceptions=True)


def plan(text: str) -> EffectPlan:
    """A plan by itself, for what judges plans alone."""
    return EffectPlan("post", "desk", "one", "default", text, effect_body("post", "desk", "one", {"text": text}), bytes(32))
