"""What tests of the outbox stand on: jobs with authorised effects put there by SQL, and a connector that follows a script."""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Literal
from uuid import UUID

from pydantic import BaseModel, ConfigDict

from deedbox.dispatch.loop import Dispatcher
from deedbox.extend.connector import Capability, EffectOrder, LookUp, Outcome, Receipt
from deedbox.model.fingerprint import effect_body, sha256
from deedbox.model.identity import Kind, Method, Principal
from deedbox.operate.verbs import Verbs
from deedbox.store import outbox, switch
from deedbox.store.ids import IdSource
from deedbox.store.outbox import Leased
from deedbox.store.pool import Connection, Pool
from deedbox.store.transaction import transaction
from tests.database import TestDatabase

Script = Outcome | Exception | Callable[[EffectOrder], Awaitable[Outcome]]


class AnyPayload(BaseModel):
    """Takes anything."""

    model_config = ConfigDict(extra="allow")


@dataclass
class ScriptedConnector:
    """Answers what it was told, one per sending, then receipts; keeps every order it was given."""

    name: str = "note"
    script: deque[Script] = field(default_factory=deque[Script])
    answers: deque[LookUp | Exception] = field(default_factory=deque[LookUp | Exception])
    can: Capability = "blind"
    ttl_s: float | None = None
    sent: list[EffectOrder] = field(default_factory=list[EffectOrder])
    asked: list[EffectOrder] = field(default_factory=list[EffectOrder])
    payload_model: type[BaseModel] = AnyPayload

    def check_target(self, target: str) -> None:
        """Every target will do."""

    def describe(self, target: str, payload: Mapping[str, Any]) -> str:
        """A sentence."""
        return f"Sends {len(payload)} fields to {target}."

    def check_plan(self, target: str, payload: Mapping[str, Any]) -> None:
        """Every plan will do."""

    def capability(self, target: str) -> Capability:  # noqa: ARG002 -- every target is the same
        """What the test wants."""
        return self.can

    def key_ttl_s(self, target: str) -> float | None:  # noqa: ARG002 -- every target is the same
        """What the test wants."""
        return self.ttl_s

    async def send(self, order: EffectOrder) -> Outcome:
        """The next line of the script."""
        self.sent.append(order)
        line: Script = self.script.popleft() if self.script else Receipt(f"provider-{order.slot}", {"status": 201})
        if isinstance(line, Exception):
            raise line
        return await line(order) if callable(line) else line

    async def look_up(self, order: EffectOrder) -> LookUp:
        """The next answer."""
        self.asked.append(order)
        answer = self.answers.popleft() if self.answers else LookUp("still_unknown")
        if isinstance(answer, Exception):
            raise answer
        return answer


@dataclass(frozen=True)
class Planned:
    """One effect of a job to build. Times are in seconds from now."""

    slot: str = "first"
    target: str = "desk"
    connector: str = "note"
    payload: Mapping[str, Any] = field(default_factory=lambda: {"text": "Grüße"})
    group: str = "default"
    kind: Literal["act", "notice"] = "act"
    authority: Literal["approval", "verdict"] = "approval"
    after: str | None = None
    not_before_s: float = 0.0
    not_after_s: float = 86400.0


_RULES = {"act": "test", "notice": "system.notice"}


@dataclass(frozen=True)
class Built:
    """A job as it was built: its id and the ids of its effects by slot."""

    job_id: UUID
    effects: dict[str, UUID]

    @property
    def effect_id(self) -> UUID:
        """The first effect."""
        return next(iter(self.effects.values()))


@dataclass
class Outbox:
    """A database with the outbox's parts around it."""

    database: TestDatabase
    pool: Pool
    ids: IdSource
    connector: ScriptedConnector
    subject: UUID

    def dispatcher(self, **options: Any) -> Dispatcher:
        """A dispatcher with the scripted connector and the environment's half on."""
        given: dict[str, Any] = {"environment_on": True} | options
        connectors = given.pop("connectors", {self.connector.name: self.connector})
        return Dispatcher(self.pool, self.ids, connectors, **given)

    def verbs(self) -> Verbs:
        """The operators' verbs."""
        return Verbs(self.pool, self.ids, {self.connector.name: self.connector}, environment_on=True)

    async def turn(self, *, on: bool) -> None:
        """Turn the database's half."""
        async with transaction(self.pool) as connection:
            await switch.turn_root(connection, "acts", is_on=on, changed_by="test", reason="a test")

    async def lease(self, limit: int = 10, *, environment_on: bool = True, lease_s: float = 60.0) -> list[Leased]:
        """Lease in a transaction of its own."""
        async with transaction(self.pool) as connection:
            return await self.lease_in(connection, limit, environment_on=environment_on, lease_s=lease_s)

    async def lease_in(
        self, connection: Connection, limit: int = 10, *, environment_on: bool = True, lease_s: float = 60.0
    ) -> list[Leased]:
        """Lease inside the caller's transaction."""
        return await outbox.lease(
            connection,
            environment_on=environment_on,
            connectors=[self.connector.name],
            sender="test-sender",
            lease_s=lease_s,
            event_ids=self.ids.many(limit),
        )

    async def rescue(self) -> list[UUID]:
        """What sweep does about lapsed sendings."""
        async with transaction(self.pool) as connection:
            return await outbox.rescue_sendings(connection, self.ids)

    async def expire(self) -> list[UUID]:
        """What sweep does about effects that cannot be sent any more."""
        async with transaction(self.pool) as connection:
            return await outbox.expire_unsent(connection, self.ids)

    async def state(self, effect_id: UUID) -> str:
        """The state of an effect."""
        return str(await self.database.value("SELECT state FROM deedbox.effect WHERE effect_id = %s", effect_id))

    async def job_state(self, job_id: UUID) -> str:
        """The state of a job; fails unless it is in the queue or has a result, exactly one of them."""
        rows = await self.database.rows(
            "SELECT state FROM deedbox.queue WHERE job_id = %s UNION ALL SELECT state FROM deedbox.result WHERE job_id = %s",
            job_id,
            job_id,
        )
        (only,) = rows
        return str(only[0])

    async def events(self, job_id: UUID) -> list[str]:
        """The types of a job's events; fails unless their numbers have no gap."""
        rows = await self.database.rows("SELECT seq, type FROM deedbox.event WHERE job_id = %s ORDER BY seq", job_id)
        assert [row[0] for row in rows] == list(range(1, len(rows) + 1))
        return [str(row[1]) for row in rows]

    async def until_blocked(self, many: int = 1) -> None:
        """Return once PostgreSQL says that so many sessions of this database wait for a lock."""
        query = (
            "SELECT count(*) FROM pg_stat_activity"
            " WHERE datname = current_database() AND cardinality(pg_blocking_pids(pid)) > 0 -- a lock, not a latch"
        )
        async with asyncio.timeout(20):
            while await self.database.value(query) != many:  # noqa: ASYNC110 -- each round is a question to PostgreSQL
                await asyncio.sleep(0)

    async def build(
        self,
        *planned: Planned,
        state: str = "dispatching",
        tenant: str = "default",
        action: str = "send_note",
        declined: Sequence[tuple[str, str]] = (),
        open_groups: Sequence[str] = (),
    ) -> Built:
        """A job that the gate has let through: its effects are on the outbox, each group approved or allowed.

        `declined` adds groups (name, state) that were not approved; `open_groups` adds approvals nobody has decided.
        """
        job_id, proposal_id = self.ids.new(), self.ids.new()
        async with transaction(self.pool) as connection:
            await self._job(connection, job_id, proposal_id, state, tenant, action)
            for group in dict.fromkeys(item.group for item in planned):
                members = [(item, sha256(_body(item))) for item in planned if item.group == group]
                await self._authorise(connection, job_id, proposal_id, tenant, action, group, members)
            for group, ended in [*declined, *((name, "pending") for name in open_groups)]:
                await self._approval(connection, job_id, proposal_id, tenant, action, group, ended, [sha256(group.encode())])
            effects = [
                await self._effect(connection, job_id, proposal_id, tenant, action, item, position)
                for position, item in enumerate(planned)
            ]
        return Built(job_id, {item.slot: effect_id for item, effect_id in zip(planned, effects, strict=True)})

    async def _job(self, connection: Connection, job_id: UUID, proposal_id: UUID, state: str, tenant: str, action: str) -> None:
        key = sha256(job_id.bytes)
        await connection.execute(
            "INSERT INTO deedbox.tenant (tenant) VALUES (%s) ON CONFLICT DO NOTHING",
            [tenant],
        )
        await connection.execute(
            "INSERT INTO deedbox.lane (queue, action, tenant) VALUES ('default', %s, %s) ON CONFLICT DO NOTHING",
            [action, tenant],
        )
        await connection.execute(
            "INSERT INTO deedbox.idempotency (tenant, action, key_sha256, job_id, payload_sha256) VALUES (%s, %s, %s, %s, %s)",
            [tenant, action, key, job_id, key],
        )
        await connection.execute(
            "INSERT INTO deedbox.job (job_id, tenant, action, action_version, key_sha256, key_source, subject, role, source,"
            " created_at) VALUES (%s, %s, %s, 1, %s, 'header', %s, 'operator', 'http', deedbox.clock())",
            [job_id, tenant, action, key, self.subject],
        )
        await connection.execute(
            "INSERT INTO deedbox.queue (job_id, lane_id, state, action_version, run_at, attempt, attempts_allowed, last_seq,"
            " attempt_id, fence, worker, started_at, lease_until, lease_cap)"
            " SELECT %(job)s, lane_id, %(state)s, 1, deedbox.clock(), 1, 5, 1, lease.* FROM deedbox.lane LEFT JOIN (SELECT"
            " gen_random_uuid(), 1, 'w', deedbox.clock(), deedbox.clock() + interval '1h', deedbox.clock() + interval '1h')"
            " AS lease ON %(state)s = 'running' WHERE action = %(action)s AND tenant = %(tenant)s",
            {"job": job_id, "state": state, "action": action, "tenant": tenant},
        )
        await connection.execute(
            "INSERT INTO deedbox.event (job_id, seq, event_id, type, round, at, payload)"
            " VALUES (%s, 1, %s, 'job.queued', 1, deedbox.clock(), '{}')",
            [job_id, self.ids.new()],
        )
        await connection.execute(
            "INSERT INTO deedbox.proposal (job_id, proposal_id, output, policy_version, created_at)"
            """ VALUES (%s, %s, '{"draft": "Grüße"}', 'test:1', deedbox.clock())""",
            [job_id, proposal_id],
        )

    async def _authorise(
        self,
        connection: Connection,
        job_id: UUID,
        proposal_id: UUID,
        tenant: str,
        action: str,
        group: str,
        members: Sequence[tuple[Planned, bytes]],
    ) -> None:
        digests = [digest for _, digest in members]
        if members[0][0].authority == "verdict":
            await connection.execute(
                "INSERT INTO deedbox.verdict (verdict_id, job_id, proposal_id, group_name, decision, rule, policy_version,"
                " effect_digests, decided_at) VALUES (%s, %s, %s, %s, 'allow', %s, 'test:1', %s, deedbox.clock())",
                [self.ids.new(), job_id, proposal_id, group, _RULES[members[0][0].kind], digests],
            )
        else:
            await self._approval(connection, job_id, proposal_id, tenant, action, group, "approved", digests)

    async def _approval(
        self,
        connection: Connection,
        job_id: UUID,
        proposal_id: UUID,
        tenant: str,
        action: str,
        group: str,
        state: str,
        digests: Sequence[bytes],
    ) -> None:
        decided = state in {"approved", "rejected"}
        await connection.execute(
            "INSERT INTO deedbox.approval (approval_id, job_id, tenant, action, proposal_id, purpose, group_name, state,"
            " digest, effect_digests, policy_version, rule, audience, requested_at, expires_at, decided_at, decided_by,"
            " decided_how, reason)"
            " VALUES (%s, %s, %s, %s, %s, 'effects', %s, %s, %s, %s, 'test:1', 'hold', '{manager}', deedbox.clock(),"
            " deedbox.clock() + interval '1 day', CASE WHEN %s THEN NULL ELSE deedbox.clock() END, %s, %s, %s)",
            [
                self.ids.new(),
                job_id,
                tenant,
                action,
                proposal_id,
                group,
                state,
                sha256(b"".join(digests)),
                list(digests),
                state == "pending",
                self.subject if decided else None,
                "api" if decided else None,
                "not wanted" if state == "rejected" else None,
            ],
        )

    async def _effect(
        self, connection: Connection, job_id: UUID, proposal_id: UUID, tenant: str, action: str, item: Planned, position: int
    ) -> UUID:
        effect_id, proposal_effect_id = self.ids.new(), self.ids.new()
        body = _body(item)
        await connection.execute(
            "INSERT INTO deedbox.proposal_effect (proposal_effect_id, job_id, proposal_id, group_name, position, connector,"
            " target, slot, summary, body, digest) VALUES (%s, %s, %s, %s, %s, %s, %s, %s, 'Sends a note.', %s, %s)",
            [
                proposal_effect_id,
                job_id,
                proposal_id,
                item.group,
                position,
                item.connector,
                item.target,
                item.slot,
                body,
                sha256(body),
            ],
        )
        await connection.execute(
            "INSERT INTO deedbox.effect (effect_id, job_id, tenant, action, kind, proposal_effect_id, connector, target, slot,"
            " digest, state, not_before, not_after, after_slot, approval_id, verdict_id) VALUES (%s, %s, %s, %s, %s, %s, %s,"
            " %s, %s, %s, 'pending', deedbox.clock() + make_interval(secs => %s), deedbox.clock() + make_interval(secs => %s),"
            " %s, (SELECT approval_id FROM deedbox.approval WHERE job_id = %s AND group_name = %s),"
            " (SELECT verdict_id FROM deedbox.verdict WHERE job_id = %s AND group_name = %s))",
            [
                effect_id,
                job_id,
                tenant,
                action,
                item.kind,
                proposal_effect_id,
                item.connector,
                item.target,
                item.slot,
                sha256(body),
                item.not_before_s,
                item.not_after_s,
                item.after,
                *(job_id, item.group),
                *(job_id, item.group),
            ],
        )
        return effect_id


def _body(item: Planned) -> bytes:
    return effect_body(item.connector, item.target, item.slot, dict(item.payload))


@asynccontextmanager
async def outbox_on(database: TestDatabase, *, switch_on: bool = True) -> AsyncGenerator[Outbox]:
    """An outbox in this database, its switch on unless the test wants otherwise."""
    pool = Pool(database.url, "test", size=12)
    await pool.open()
    try:
        ids = await IdSource.read(pool)
        made = Outbox(database, pool, ids, ScriptedConnector(), ids.new())
        if switch_on:
            await made.turn(on=True)
        yield made
    finally:
        await pool.close()


def principal(
    ids: IdSource,
    *roles: str,
    name: str = "someone",
    kind: Kind = "person",
    tenant: str = "default",
    method: Method = "session",
) -> Principal:
    """Somebody with these roles."""
    return Principal(str(ids.new()), tenant, name, kind, frozenset(roles), method)
