"""Effects by the thousand at providers of every kind, each of which breaks at one request in five; then what they really did
is held against what Deedbox says.

Three HTTP providers (one that knows keys, one that can be asked, one that can do neither) and a mail server. Worker,
dispatcher and providers run in this process on a PostgreSQL of the run's own; every call goes over a socket.
"""

import asyncio
from collections import Counter
from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from uuid import UUID

from pydantic import BaseModel

from deedbox import App, Context, Http, Smtp, hold
from deedbox.connectors.settings import ConnectorSettings, HttpTargetConfig, SmtpConfig
from deedbox.dispatch.loop import Dispatcher
from deedbox.dispatch.reconcile import look_up
from deedbox.egress import EgressPolicy
from deedbox.gate.decide import decide
from deedbox.model.backoff import Retry
from deedbox.store import ledger
from deedbox.store.transaction import autocommit
from tests.chaos.provider import MovingProvider
from tests.counted.mail import BreakingMail
from tests.database import TestDatabase
from tests.road import Road, road, until

IN_A_JOB = 20
LEASE_S = 4.0
SLOTS = 96
TARGETS = ("keyed", "searchable", "blind", "mail")
_MOST_ROUNDS = 50


class Batch(BaseModel):
    """So many effects, from this number on."""

    first: int
    count: int


class Planned(BaseModel):
    """How many were planned."""

    count: int


def make_app() -> App:
    """One action whose effects go to all targets in turn."""
    app = App(connectors=[Http(), Smtp()])

    @app.action(roles=["operator"], approvers=["manager"], policy=hold())
    async def send_batch(ctx: Context, batch: Batch) -> Planned:
        for number in range(batch.first, batch.first + batch.count):
            target = TARGETS[number % len(TARGETS)]
            if target == "mail":
                reader = f"reader{number}@example.test"
                mail = {"to": reader, "subject": f"Number {number}", "body": f"It is {number}."}
                ctx.effect("smtp", target=reader, slot=f"n{number}", payload=mail)
            else:
                ctx.effect("http", target=target, slot=f"n{number}", payload={"path": "/notes", "body": {"number": number}})
        return Planned(count=batch.count)

    assert list(app.actions) == ["send_batch"], send_batch
    return app


@dataclass
class Count:
    """What a run came to; `faults` has a line for everything that is not as promised."""

    effects: int = 0
    requests: int = 0
    broken: int = 0
    states: Counter[str] = field(default_factory=Counter[str])
    once_unknown: int = 0
    looked_up: int = 0
    left: int = 0
    faults: list[str] = field(default_factory=list[str])

    def lines(self) -> list[str]:
        """For people."""
        states = ", ".join(f"{count} {state}" for state, count in sorted(self.states.items()))
        return [
            f"{self.effects} effects: {states}",
            f"{self.requests} requests and mails reached a provider, {self.broken} of them met a fault",
            f"{self.once_unknown} were unknown at some time; a look-up settled {self.looked_up}, a person has {self.left}",
            *(f"broken promise: {line}" for line in self.faults[:20]),
            f"{len(self.faults)} broken promises",
        ]


async def run(database: TestDatabase, effects: int, *, seed: int) -> Count:
    """Send so many effects through breaking providers, ask about what is unknown, and count."""
    async with AsyncExitStack() as stack:
        providers = {
            name: MovingProvider(name=name, seed=seed, honours_keys=name == "keyed") for name in TARGETS if name != "mail"
        }
        for provider in providers.values():
            await stack.enter_async_context(provider.running())
        mail = await stack.enter_async_context(BreakingMail(seed=seed).running())
        assert isinstance(mail, BreakingMail)
        app = make_app()
        _bind(app, providers, mail)
        await database.rows("UPDATE deedbox.switch SET is_on = true")
        one = await stack.enter_async_context(road(database, app))
        one.start(one.worker(slots=4))
        one.start(
            Dispatcher(
                one.pool,
                one.ids,
                app.connectors,
                environment_on=True,
                slots=SLOTS,
                lease_s=LEASE_S,
                retry=Retry(attempts=20, base=0.05, cap=0.5),
            )
        )
        await _propose_and_approve(one, effects)
        await _settled(one, effects)
        count = Count(effects=effects)
        await _ask(one, count)
        await one.stop_all()
        await _check(one, providers, mail, count)
        return count


def _bind(app: App, providers: Mapping[str, MovingProvider], mail: BreakingMail) -> None:
    own: dict[str, dict[str, object]] = {
        "keyed": {"capability": "native_key", "proven": "2026-11-30 by this run", "key_ttl_s": 86400.0},
        "searchable": {"capability": "searchable", "look_up": "/notes/{key}"},
        "blind": {},
    }
    targets = [
        HttpTargetConfig.model_validate({"name": name, "base_url": provider.url, **own[name]})
        for name, provider in providers.items()
    ]
    smtp = SmtpConfig(host=mail.host, port=mail.port, sender="desk@example.test", security="none")
    settings = ConnectorSettings(smtp=smtp, http=tuple(targets))
    policy = EgressPolicy(frozenset({"127.0.0.1"}))
    for connector in app.connectors.values():
        connector.bind(settings, policy)  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]


async def _propose_and_approve(one: Road, effects: int) -> None:
    firsts = range(0, effects, IN_A_JOB)
    jobs = await asyncio.gather(
        *(
            one.submit("send_batch", {"first": first, "count": min(IN_A_JOB, effects - first)}, f"batch-{first}")
            for first in firsts
        )
    )

    async def approve(job_id: UUID) -> None:
        state = await one.until(job_id, "awaiting_human", "failed_terminal", within=120)
        assert state == "awaiting_human", await one.events(job_id)
        ((approval_id, digest),) = await one.database.rows(
            "SELECT approval_id, encode(digest, 'hex') FROM deedbox.approval WHERE job_id = %s", job_id
        )
        await decide(
            one.pool,
            one.ids,
            one.approver,
            approval_id=UUID(str(approval_id)),
            digest_hex=str(digest),
            choice="approve",
            reason=None,
            how="test",
        )

    each = iter([job.job_id for job in jobs])

    async def person() -> None:
        for job_id in each:
            await approve(job_id)

    await asyncio.gather(*(person() for _ in range(4)))


async def _settled(one: Road, effects: int) -> None:
    """Wait until nothing waits or is on the wire."""
    query = "SELECT count(*) FROM deedbox.effect WHERE state IN ('pending', 'sending')"
    await until(lambda: one.database.value(query), lambda left: left == 0, within=120 + effects / 20)


async def _ask(one: Road, count: Count) -> None:
    """Ask the provider about everything that can be asked for, until it has said."""
    rows = await one.database.rows(
        "SELECT count(DISTINCT payload ->> 'effect_id') FROM deedbox.event WHERE type = 'effect.unknown'"
    )
    count.once_unknown = int(str(rows[0][0]))
    for _ in range(_MOST_ROUNDS):
        unknown = await one.database.rows(
            "SELECT effect_id FROM deedbox.effect WHERE state = 'unknown' AND target = 'searchable' ORDER BY effect_id"
        )
        if not unknown:
            return
        for (effect_id,) in unknown:
            found = await look_up(one.pool, one.ids, one.app.connectors, tenant="default", effect_id=UUID(str(effect_id)))
            count.looked_up += found.state == "completed"
        await _settled(one, len(unknown))


async def _check(one: Road, providers: Mapping[str, MovingProvider], mail: BreakingMail, count: Count) -> None:
    done: dict[str, Counter[str]] = {
        name: Counter(note["key"] for note in provider.performed) for name, provider in providers.items()
    }
    done["mail"] = mail.count()
    arrivals = [arrival for provider in providers.values() for arrival in provider.arrivals]
    count.requests = len(arrivals) + mail.drawn.total()
    count.broken = sum(arrival.fault != "none" for arrival in arrivals) + mail.drawn.total() - mail.drawn["none"]
    doubtful = {arrival.key for arrival in arrivals if arrival.acted and not arrival.told}
    rows = await one.database.rows(
        "SELECT effect_id::text, CASE connector WHEN 'smtp' THEN 'mail' ELSE target END, state FROM deedbox.effect"
    )
    async with autocommit(one.pool) as connection:
        shown = await ledger.list_effects(connection, "default", state="unknown", limit=len(rows))
    listed = {str(row["effect_id"]) for row in shown}
    for effect_id, target, state in ((str(row[0]), str(row[1]), str(row[2])) for row in rows):
        times = done[target][effect_id]
        count.states[state] += 1
        allowed = {"completed": {1}, "failed": {0}, "canceled": {0}, "unknown": {0, 1}}.get(state, set[int]())
        if times not in allowed:
            count.faults.append(f"{effect_id} at {target} is {state}, and was done {times} times")
        if target == "blind" and effect_id in doubtful and state != "unknown":
            count.faults.append(f"{effect_id} was done without a word of it, and is {state}")
        if state == "unknown" and target in {"keyed", "searchable"}:
            count.faults.append(f"{effect_id} at {target} could be asked for, and is unknown")
        if state == "unknown" and effect_id not in listed:
            count.faults.append(f"{effect_id} is unknown, and no list shows it")
    count.left = count.states["unknown"]
    if len(rows) != count.effects:
        count.faults.append(f"{count.effects} effects were approved and {len(rows)} are there")
    strangers = {key for keys in done.values() for key in keys} - {str(row[0]) for row in rows}
    count.faults += [f"a provider did {key}, which nobody approved" for key in strangers]
