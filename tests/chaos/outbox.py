"""Thousands of effects through several dispatchers to providers that break a fifth of them, and what each provider really did.

`make effects` sends ten thousand; a few hundred are in `make test`. Everything random follows from the seed.
"""

import asyncio
import random
import re
import time
from collections import Counter
from collections.abc import AsyncGenerator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, cast

from deedbox.connectors import ConnectorSettings, Http, HttpTargetConfig, Smtp, SmtpConfig
from deedbox.dispatch.loop import Dispatcher
from deedbox.dispatch.schedule import Schedule
from deedbox.egress import EgressPolicy
from deedbox.model.backoff import Retry
from deedbox.store import ledger
from deedbox.store.reconcile import LookUps
from deedbox.store.targets import Breaker
from deedbox.store.transaction import autocommit
from tests.builders import Outbox, Planned
from tests.servers.http_provider import Fault, HttpProvider, Request
from tests.servers.smtp_server import Phase, SmtpServer

LEASE_S = 4.0
_A_JOB = 10
"""Effects of one job."""
_HTTP: dict[Fault, int] = {
    "none": 76,
    "accept_then_hang": 2,
    "accept_then_reset": 7,
    "accept_then_503": 6,
    "accept_then_cut": 2,
    "accept_then_garbage": 1,
    "accept_without_id": 2,
    "rate_limited": 3,
    "refuse": 1,
}
_TWICE: Fault = "arrive_twice"
_READS: dict[Fault, int] = {"none": 85, "accept_then_reset": 5, "accept_then_503": 5, "rate_limited": 5}
_PHASES: tuple[Phase, ...] = ("banner", "ehlo", "mail", "rcpt", "data", "body", "dot")
_ENDS = ("stall", "close", "451 not now")
_SURELY_NOT: frozenset[Fault] = frozenset({"rate_limited", "refuse"})
_EFFECT = re.compile(rb"^Message-ID: <([0-9a-f-]{36})@", re.MULTILINE | re.IGNORECASE)


@dataclass(slots=True)
class Breaking(HttpProvider):
    """A provider that draws what goes wrong, and keeps which answers a sender could not read."""

    seed: str = ""
    broken: Counter[str] = field(default_factory=Counter[str])
    doubted: set[str] = field(default_factory=set[str])
    """Keys of what was done without an answer that says so."""
    _rng: random.Random = field(default_factory=random.Random)

    def __post_init__(self) -> None:
        """The draws follow from the seed."""
        self._rng = random.Random(self.seed)  # noqa: S311 -- faults, no secrets

    async def _answer(self, request: Request, writer: asyncio.StreamWriter) -> bool:
        key = request.headers.get("idempotency-key", "")
        weights = dict(_READS if request.method == "GET" else _HTTP)
        if request.method != "GET" and self.honours_keys:
            weights[_TWICE] = 4
        fault = self._rng.choices(list(weights), list(weights.values()))[0]
        if fault == "refuse" and key in self.by_key:
            fault = "none"  # whoever knows keys answers a known one as before
        self.broken[fault] += 1
        if request.method != "GET" and fault not in {"none", _TWICE} and fault not in _SURELY_NOT:
            self.doubted.add(key)
        self.faults.appendleft(fault)
        return await HttpProvider._answer(self, request, writer)


@dataclass(slots=True)
class BreakingMail(SmtpServer):
    """A mail server on which a fifth of the connections stall, close or answer `not now`, each at a phase of its own."""

    seed: str = ""
    broken: Counter[str] = field(default_factory=Counter[str])
    _rng: random.Random = field(default_factory=random.Random)

    def __post_init__(self) -> None:
        """The draws follow from the seed."""
        self._rng = random.Random(self.seed)  # noqa: S311 -- faults, no secrets

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # What one connection counts stays with its copy below: all of them are counted here.
        self.connections += 1
        faults: dict[Phase, str] = {}
        if self._rng.random() < 0.22:
            phase, end = self._rng.choice(_PHASES), self._rng.choice(_ENDS)
            # What a server says in the middle of a message nobody listens to.
            faults[phase] = "close" if phase == "body" and end[0].isdigit() else end
            self.broken[f"{phase} {faults[phase]}"] += 1
        else:
            self.broken["none"] += 1
        one = SmtpServer(faults=faults, mails=self.mails, commands=[], released=self.released)
        self._writers.add(writer)
        try:
            await SmtpServer._connection(one, reader, writer)
        finally:
            self._writers.discard(writer)


@dataclass(slots=True)
class World:
    """The providers by target, the mail server, and the connectors that lead to them."""

    http: dict[str, Breaking]
    mail: BreakingMail
    connectors: dict[str, Any]


@asynccontextmanager
async def world(seed: int) -> AsyncGenerator[World]:
    """Providers of each capability, listening."""
    kinds: dict[str, dict[str, Any]] = {
        "keyed": {
            "capability": "native_key",
            "proven": "2026-11-30 by us",
            "key_ttl_s": 86400.0,
            "look_up": "/notes/{key}",
        },
        "searchable": {"capability": "searchable", "look_up": "/notes/{key}"},
        "blind": {},
    }
    async with AsyncExitStack() as stack:
        providers: dict[str, Breaking] = {}
        for name in kinds:
            providers[name] = Breaking(honours_keys=name == "keyed", seed=f"{seed}-{name}")
            await stack.enter_async_context(providers[name].running())
        mail = BreakingMail(seed=f"{seed}-mail")
        await stack.enter_async_context(mail.running())
        stack.callback(mail.released.set)
        settings = ConnectorSettings(
            http=tuple(
                HttpTargetConfig.model_validate({"name": name, "base_url": providers[name].url, **more})
                for name, more in kinds.items()
            ),
            smtp=SmtpConfig(host=mail.host, port=mail.port, sender="desk@example.org", security="none"),
        )
        http, smtp = Http(), Smtp()
        for one in (http, smtp):
            one.bind(settings, EgressPolicy(frozenset({"127.0.0.1"})))
            stack.push_async_callback(one.aclose)
        yield World(providers, mail, {"http": http, "smtp": smtp})


def planned(number: int) -> Planned:
    """The number's effect: by turns at each target."""
    slot = f"effect-{number}"
    if number % 4 == 3:
        to = f"person-{number}@example.org"
        return Planned(slot, to, "smtp", {"to": [to], "subject": slot, "body": "Good day."})
    target = ("keyed", "searchable", "blind")[number % 4]
    return Planned(slot, target, "http", {"method": "POST", "path": "/notes", "body": {"slot": slot}})


async def run(box: Outbox, around: World, effects: int, *, within_s: float) -> None:
    """Put so many effects on the outbox and let three dispatchers, the schedule and sweep work until none is to be sent."""
    for first in range(0, effects, _A_JOB):
        await box.build(*(planned(number) for number in range(first, min(first + _A_JOB, effects))))
    stop = asyncio.Event()
    retry, breaker = Retry(attempts=50, base=0.05, cap=0.5), Breaker(failures=5, window_s=60, open_s=0.1, longest_s=0.4)
    loops = [
        Dispatcher(
            box.pool, box.ids, around.connectors, environment_on=True, slots=24, lease_s=LEASE_S, retry=retry, breaker=breaker
        )
        for _ in range(3)
    ]
    schedule = Schedule(box.pool, box.ids, around.connectors, LookUps(first_s=0.2, longest_s=1.0, tries=40))
    running = [asyncio.create_task(loop.run(stop)) for loop in [*loops, schedule]]
    try:
        async with asyncio.timeout(within_s):
            while await box.database.value(
                "SELECT count(*) FROM deedbox.effect WHERE state IN ('pending', 'sending') OR look_up_at IS NOT NULL"
                " AND state = 'unknown'"
            ):
                await box.rescue()
                await asyncio.sleep(0.2)
    finally:
        stop.set()
        around.mail.released.set()
        await asyncio.gather(*running)


_EFFECTS = """
SELECT e.effect_id::text, CASE e.connector WHEN 'smtp' THEN 'mail' ELSE e.target END, e.state, e.code,
       (SELECT count(*) FROM deedbox.event v WHERE v.job_id = e.job_id AND v.type = 'effect.unknown'
            AND v.payload ->> 'effect_id' = e.effect_id::text),
       ARRAY(SELECT source FROM deedbox.receipt r WHERE r.job_id = e.job_id AND r.effect_id = e.effect_id),
       coalesce(e.sender_closed, false), e.attempt, e.look_ups,
       EXISTS (SELECT FROM deedbox.alert a WHERE a.effect_id = e.effect_id AND a.closed_at IS NULL)
FROM deedbox.effect e
"""


@dataclass(frozen=True, slots=True)
class _Effect:
    """An effect as the database has it at the end; `unknowns` is how often it was unknown."""

    effect_id: str
    where: str
    state: str
    code: str | None
    unknowns: int
    sources: list[str]
    closed: bool
    attempt: int
    look_ups: int
    alarmed: bool


@dataclass(slots=True)
class Count:
    """What a run came to; `faults` has a line for everything that is not as promised."""

    effects: int
    arrived: int
    broken: Counter[str]
    ends: Counter[str] = field(default_factory=Counter[str])
    once_unknown: int = 0
    looked_up: int = 0
    left: int = 0
    seconds: float = 0.0
    faults: list[str] = field(default_factory=list[str])

    @property
    def faulty(self) -> int:
        """Requests and conversations that met a fault."""
        return self.broken.total() - self.broken["none"]

    def lines(self) -> list[str]:
        """For people."""
        return [
            f"{self.effects} effects in {self.seconds:.0f} s",
            *(f"  {end}: {count}" for end, count in sorted(self.ends.items())),
            f"{self.arrived} requests and mails reached a provider, {self.faulty} of them met a fault",
            *(f"  {fault}: {count}" for fault, count in sorted(self.broken.items()) if fault != "none"),
            f"{self.once_unknown} were unknown for a time; a look-up settled {self.looked_up}, {self.left} are left to people",
            *(f"broken promise: {line}" for line in self.faults[:20]),
            f"{len(self.faults)} broken promises",
        ]


async def count(box: Outbox, effects: int, *, seed: int, within_s: float) -> Count:
    """Do the run, and hold what the providers did against what the database says."""
    began = time.monotonic()
    async with world(seed) as around:
        await run(box, around, effects, within_s=within_s)
        broken = sum((one.broken for one in around.http.values()), Counter(around.mail.broken))
        arrived = sum(len(one.requests) for one in around.http.values()) + around.mail.connections
        found = Count(effects, arrived, broken, seconds=time.monotonic() - began)
        await _check(box, around, found)
    return found


def unplayed(found: Count) -> list[str]:
    """Faults that a run of thousands should have met, and this one did not."""
    wanted = [*(fault for fault in _HTTP if fault != "none"), _TWICE, *(f"{phase} stall" for phase in _PHASES)]
    return [fault for fault in wanted if not found.broken[fault]]


async def _check(box: Outbox, around: World, found: Count) -> None:
    done = {name: Counter(str(note["key"]) for note in provider.performed) for name, provider in around.http.items()}
    done["mail"] = Counter(match[1].decode() for mail in around.mail.mails if (match := _EFFECT.search(mail.data)))
    if done["mail"].total() != len(around.mail.mails):
        found.faults.append(f"{len(around.mail.mails)} mails, {done['mail'].total()} with the id of an effect")
    rows = [_Effect(*cast("Any", row)) for row in await box.database.rows(_EFFECTS)]
    async with autocommit(box.pool) as connection:
        shown = await ledger.list_effects(connection, "default", state="unknown", limit=len(rows) + 1)
    listed = {str(row["effect_id"]) for row in shown}
    for one in rows:
        asked = one.state == "completed" and "look_up" in one.sources
        found.ends[f"{one.where} {one.state}{' by look-up' if asked else ''}"] += 1
        found.once_unknown += bool(one.unknowns)
        found.looked_up += asked
        found.left += one.state == "unknown"
        lost = one.where in {"searchable", "blind"} and one.effect_id in around.http[one.where].doubted
        about = f"effect {one.effect_id} at {one.where}"
        found.faults += [
            f"{about}: {line}"
            for line in _wrong(one, done[one.where][one.effect_id], lost=lost, listed=one.effect_id in listed)
        ]
    if len(rows) != found.effects:
        found.faults.append(f"{found.effects} effects were authorised, and {len(rows)} are there")
    strangers = {key for keys in done.values() for key in keys} - {one.effect_id for one in rows}
    found.faults += [f"a provider did {key!r}, which nobody authorised" for key in strangers]


def _wrong(one: _Effect, done: int, *, lost: bool, listed: bool) -> Iterator[str]:
    """What is wrong with an effect that its provider did so many times; `lost`: without an answer that says so."""
    if done > 1:
        yield f"done {done} times"
    if one.state == "completed" and done != 1:
        yield f"completed, and done {done} times"
    if one.state == "failed" and done:
        yield f"failed ({one.code}), and done"
    if one.state not in {"completed", "failed", "unknown"}:
        yield f"still {one.state}"
    if lost and not one.unknowns:
        yield "its answer was lost, and it was never unknown"
    if one.state != "unknown":
        return
    if not listed:
        yield "unknown, and no list shows it"
    if not one.alarmed:
        yield "unknown, and nobody is told"
    if one.where in {"keyed", "searchable"} and (one.closed or done):
        # What a lost sender may still bring about is left to people; all else a look-up tells.
        yield f"unknown ({one.code}) after {one.attempt} sendings and {one.look_ups} look-ups, and done {done} times"
