"""Effects: the dispatcher empties an outbox into a local HTTP provider, beside a bare httpx2 loop with the same bodies."""

import asyncio
from time import monotonic
from typing import Any
from uuid import UUID, uuid4

import httpx2
import psycopg
from pydantic import BaseModel

from bench import processor
from bench.cells import provider
from bench.child import Bench, Child, run
from bench.database import TEMPLATE, Database, Server
from bench.note import Note
from bench.samples import Sample
from deedbox import App, Context, Http, HttpCall, hold
from deedbox.access.resolve import resolve_key
from deedbox.connectors.settings import HttpTargetConfig
from deedbox.intake.request import Request
from deedbox.model.identity import Principal
from deedbox.settings import Settings
from deedbox.telemetry import configure_logging
from deedbox.wiring import Database as Store
from deedbox.wiring import Installation, Role, opened, run_roles

MODULE = "bench.cells.effects"
AT_ONCE = 32
_ACTION = "post_note"
_LONGEST_S = 180
_SUBMITTERS, _APPROVING = 64, 8
_BODY = {"title": "Delivery to the back entrance", "text": "The yard closes at four. " * 12}


class Posted(BaseModel):
    """What the action answers."""

    number: int


async def measure(server: Server, effects: int) -> list[Sample]:
    """Send so many effects from a full outbox, and as many requests from the bare loop, to one provider."""
    return [await dispatch(server, effects), await bare(server, effects)]


async def dispatch(server: Server, effects: int, *, cell: str = "effects", template: str = TEMPLATE) -> Sample:
    """Send so many effects from a full outbox; `template` may hold others that were sent long ago."""
    async with server.fresh(template) as database, Child(provider.MODULE, {}, database.url) as providing:
        port = int((await providing.hear())["port"])
        before = await _ended(database)
        await plan(server, database, port, effects)
        sent = await _measured(server, database, providing, {"part": "send", "port": port}, effects)
        completed, doubled = (after - then for after, then in zip(await _ended(database), before, strict=True))
    return _sample(cell, sent, effects, lost=effects - completed, doubled=doubled)


async def bare(server: Server, effects: int) -> Sample:
    """Send as many requests from the bare loop."""
    async with server.fresh() as database, Child(provider.MODULE, {}, database.url) as providing:
        port = int((await providing.hear())["port"])
        sent = await _measured(server, database, providing, {"part": "bare", "port": port, "count": effects}, effects)
    return _sample("bare_effects", sent, effects)


async def _ended(database: Database) -> tuple[int, int]:
    """Jobs that completed, and receipts beyond one for each effect."""
    row = await database.row(
        """
        SELECT (SELECT count(*) FROM deedbox.result WHERE state = 'completed'),
               (SELECT count(*) FROM deedbox.receipt) - (SELECT count(DISTINCT effect_id) FROM deedbox.receipt)
        """
    )
    return int(row[0]), int(row[1])


async def plan(server: Server, database: Database, port: int, effects: int, *, approve: bool = True) -> UUID:
    """Let a worker propose all effects while no dispatcher runs, and a person approve them if that is wanted.

    The switch for acts is on afterwards. Returns the person's id.
    """
    await database.owner.execute("UPDATE deedbox.switch SET is_on = true WHERE switch_id = 'acts'")
    person: UUID = (
        await database.row(
            """
            INSERT INTO deedbox.principal (principal_id, tenant, kind, name)
            VALUES (%(made)s, 'default', 'person', 'approver')
            ON CONFLICT (tenant, name) DO UPDATE SET name = EXCLUDED.name RETURNING principal_id
            """,
            made=uuid4(),
        )
    )[0]
    grant = "INSERT INTO deedbox.\"grant\" (principal_id, role) VALUES (%s, 'manager') ON CONFLICT DO NOTHING"
    await database.owner.execute(grant, [person])
    options = {"part": "plan", "port": port, "count": effects, "key": server.key, "person": str(person), "approve": approve}
    async with Child(MODULE, options, database.url) as planning, asyncio.timeout(_LONGEST_S):
        await planning.hear(within=_LONGEST_S)
        while (await database.row("SELECT count(*) FROM deedbox.approval WHERE state = 'pending'"))[0] < effects:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
        planning.tell("approve")
        await planning.hear(within=_LONGEST_S)
    return person


async def _measured(
    server: Server, database: Database, providing: Child, options: dict[str, Any], effects: int
) -> tuple[dict[str, Any], float, processor.Used, int]:
    async with Child(MODULE, options, database.url) as sending:
        await sending.hear()
        await database.settle()
        before = processor.read(server.postmaster, [sending.pid, providing.pid])
        sending.tell("go")
        if options["part"] == "bare":
            await sending.hear(within=_LONGEST_S)
        else:
            async with asyncio.timeout(_LONGEST_S):
                while (await database.row("SELECT EXISTS (SELECT FROM deedbox.queue)"))[0]:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
        end = monotonic()
        used = processor.between(before, processor.read(server.postmaster, [sending.pid, providing.pid]))
    providing.tell("count")
    seen = await providing.hear()
    return seen, effects / (end - seen["first"]), used, sending.pid


def _sample(
    cell: str, measured: tuple[dict[str, Any], float, processor.Used, int], effects: int, *, lost: int = 0, doubled: int = 0
) -> Sample:
    """Duplicates and losses are what the provider saw, besides those in the database."""
    seen, rate, used, pid = measured
    values = {"rate": rate, "cpu_us": used.micros([pid], effects)}
    again, missing = seen["requests"] - seen["keys"], effects - seen["keys"]
    return Sample(cell, values, effects, again + doubled, max(lost, missing), used.others)


def make_app() -> App:
    """One action that proposes one request to the provider, for a person to approve."""
    app = App(connectors=[Http()])

    @app.action(roles=["operator"], approvers=["manager"], policy=hold())
    async def post_note(ctx: Context, note: Note) -> Posted:
        call = HttpCall(path="/notes", body=dict(_BODY, number=note.number))
        ctx.effect("http", target="provider", slot="note", payload=call)
        return Posted(number=note.number)

    assert list(app.actions) == [_ACTION], post_note
    return app


def settings_for(port: int) -> Settings:
    """Those of every process here: one target, and the environment's half of the switch on."""
    address = f"127.0.0.1:{port}"
    return Settings(
        targets=(HttpTargetConfig(name="provider", base_url=f"http://{address}"),),
        egress_allow=frozenset({address}),
        send_slots=AT_ONCE,
        drain_s=5.0,
    ).model_copy(update={"actions_enabled": True})


async def _act(options: dict[str, Any], url: str, bench: Bench) -> None:
    settings = settings_for(options["port"])
    configure_logging(settings.log_level)
    roles: list[Role] = ["worker"] if options["part"] == "plan" else ["dispatch"]
    async with opened(settings, make_app(), Store(url, url), roles=roles) as installation:
        if "worker" in roles:
            await _submit(installation, options)
        bench.say(ready=True)
        if "dispatch" in roles:
            await bench.told()
        stop = asyncio.Event()
        loops = asyncio.create_task(run_roles(installation, roles, stop))
        await bench.told()
        if options.get("approve"):
            await _approve(installation, url, options["person"])
        stop.set()
        await loops
        await bench.report(stopped=True)


async def _submit(installation: Installation, options: dict[str, Any]) -> None:
    principal = await resolve_key(installation.pool, options["key"])
    assert principal is not None
    numbers = iter(range(options["count"]))

    async def submit() -> None:
        for number in numbers:
            await installation.intake.submit(Request(principal, _ACTION, {"number": number}, f"job-{number}", "http"))

    await asyncio.gather(*(submit() for _ in range(_SUBMITTERS)))


async def _approve(installation: Installation, url: str, person: str) -> None:
    query = "SELECT approval_id, encode(digest, 'hex') FROM deedbox.approval WHERE state = 'pending'"
    async with await psycopg.AsyncConnection.connect(url) as connection:
        pending: list[tuple[UUID, str]] = await (await connection.execute(query)).fetchall()
    approver = Principal(person, "default", "approver", "person", frozenset({"manager"}), "session")
    each = iter(pending)

    async def approve() -> None:
        for approval_id, digest in each:
            await installation.approvals.decide(approver, approval_id, digest, "approve", None, "page")

    await asyncio.gather(*(approve() for _ in range(_APPROVING)))


async def _bare(options: dict[str, Any], bench: Bench) -> None:
    numbers = iter(range(options["count"]))
    limits = httpx2.Limits(max_connections=AT_ONCE, max_keepalive_connections=AT_ONCE)
    async with httpx2.AsyncClient(base_url=f"http://127.0.0.1:{options['port']}", limits=limits) as client:

        async def send() -> None:
            for number in numbers:
                answer = await client.post(
                    "/notes", json=dict(_BODY, number=number), headers={"Idempotency-Key": f"bare-{number}"}
                )
                assert answer.status_code == httpx2.codes.CREATED, answer.text
                assert answer.json()["id"]

        bench.say(ready=True)
        await bench.told()
        await asyncio.gather(*(send() for _ in range(AT_ONCE)))
        await bench.report(sent=True)


async def main(options: dict[str, Any], url: str, bench: Bench) -> None:
    """Plan, send, or do what a bare loop does."""
    if options["part"] == "bare":
        await _bare(options, bench)
    else:
        await _act(options, url, bench)


if __name__ == "__main__":
    run(main)
