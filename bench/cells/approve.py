"""From a person's decision to the provider's first byte: one process decides at an even pace, another one dispatches."""

import asyncio
from time import monotonic
from typing import Any
from uuid import UUID

import psycopg

from bench import processor
from bench.cells import effects, provider
from bench.child import Bench, Child, run
from bench.database import TEMPLATE, Server
from bench.samples import Sample, percentiles
from deedbox.model.identity import Principal
from deedbox.telemetry import configure_logging
from deedbox.wiring import Database as Store
from deedbox.wiring import opened

MODULE = "bench.cells.approve"
PER_SECOND = 20


async def measure(server: Server, decisions: int, *, cell: str = "approve", template: str = TEMPLATE) -> Sample:
    """Approve so many effects one after another. All moments are read from CLOCK_MONOTONIC, which the processes share.

    `template` may hold effects that were sent long ago.
    """
    async with server.fresh(template) as database, Child(provider.MODULE, {}, database.url) as providing:
        port = int((await providing.hear())["port"])
        person = await effects.plan(server, database, port, decisions, approve=False)
        sending_options = {"part": "send", "port": port}
        deciding_options = {"port": port, "person": str(person)}
        async with (
            Child(effects.MODULE, sending_options, database.url) as sending,
            Child(MODULE, deciding_options, database.url) as deciding,
        ):
            await sending.hear()
            await deciding.hear()
            sending.tell("go")
            await database.settle()
            before = processor.read(server.postmaster, [sending.pid, deciding.pid])
            deciding.tell("go")
            calls: dict[str, tuple[float, float]] = (await deciding.hear(within=decisions / PER_SECOND + 60))["calls"]
            async with asyncio.timeout(60):
                while (await database.row("SELECT EXISTS (SELECT FROM deedbox.queue)"))[0]:  # noqa: ASYNC110
                    await asyncio.sleep(0.02)
            used = processor.between(before, processor.read(server.postmaster, [sending.pid, deciding.pid]))
        providing.tell("count")
        seen = await providing.hear()
        providing.tell("times")
        came: dict[str, float] = (await providing.hear())["came"]
        query = "SELECT jsonb_object_agg(effect_id, approval_id) FROM deedbox.effect WHERE effect_id = ANY (%(sent)s::uuid[])"
        approvals: dict[str, str] = (await database.row(query, sent=list(came)))[0]
    pairs = [(calls[approvals[effect_id]], at) for effect_id, at in came.items()]
    shares = (50, 95)
    values = {
        **percentiles([at - called for (called, _), at in pairs], shares=shares),
        **percentiles([at - answered for (_, answered), at in pairs], prefix="answer_", shares=shares),
        **percentiles([answered - called for (called, answered), _ in pairs], prefix="decide_", shares=shares),
        "cpu_us": used.micros([sending.pid, deciding.pid], decisions),
    }
    return Sample(cell, values, decisions, seen["requests"] - seen["keys"], decisions - seen["keys"], used.others)


async def main(options: dict[str, Any], url: str, bench: Bench) -> None:
    """Decide at an even pace; a decision that takes long does not put off the next."""
    settings = effects.settings_for(options["port"])
    configure_logging(settings.log_level)
    query = "SELECT approval_id, encode(digest, 'hex') FROM deedbox.approval WHERE state = 'pending' ORDER BY approval_id"
    async with opened(settings, effects.make_app(), Store(url, url)) as installation:
        async with await psycopg.AsyncConnection.connect(url) as connection:
            pending: list[tuple[UUID, str]] = await (await connection.execute(query)).fetchall()
        approver = Principal(options["person"], "default", "approver", "person", frozenset({"manager"}), "session")
        calls: dict[str, tuple[float, float]] = {}

        async def approve(approval_id: UUID, digest: str) -> None:
            called = monotonic()
            await installation.approvals.decide(approver, approval_id, digest, "approve", None, "page")
            calls[str(approval_id)] = (called, monotonic())

        bench.say(ready=True)
        await bench.told()
        began = monotonic()
        async with asyncio.TaskGroup() as group:
            for number, (approval_id, digest) in enumerate(pending):
                await asyncio.sleep(max(0.0, began + number / PER_SECOND - monotonic()))
                group.create_task(approve(approval_id, digest))
        await bench.report(calls=calls)


if __name__ == "__main__":
    run(main)
