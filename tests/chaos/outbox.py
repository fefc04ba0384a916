"""Thousands of effects through several dispatchers to providers that break a fifth of them, and what each provider really did.

`DEEDBOX_CHAOS_EFFECTS=10000 pytest tests/chaos/test_outbox.py` is the whole of it; a few hundred are in `make test`. Everything
random follows from the seed.
"""

import asyncio
import random
import re
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from deedbox.connectors import ConnectorSettings, Http, HttpTargetConfig, Smtp, SmtpConfig
from deedbox.dispatch.loop import Dispatcher
from deedbox.dispatch.schedule import Schedule
from deedbox.egress import EgressPolicy
from deedbox.model.backoff import Retry
from deedbox.store.reconcile import LookUps
from deedbox.store.targets import Breaker
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
    "accept_then_cut": 3,
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
        faults: dict[Phase, str] = {}
        if self._rng.random() < 0.22:
            phase, end = self._rng.choice(_PHASES), self._rng.choice(_ENDS)
            # What a server says in the middle of a message nobody listens to.
            faults[phase] = "close" if phase == "body" and end[0].isdigit() else end
            self.broken[f"{phase} {faults[phase]}"] += 1
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


async def wrong(box: Outbox, around: World) -> tuple[list[str], Counter[str]]:
    """What is wrong with which effect, and how many ended how at which target."""
    faults: list[str] = []
    ends: Counter[str] = Counter()
    times = {name: Counter(str(note["key"]) for note in provider.performed) for name, provider in around.http.items()}
    mails = Counter(match[1].decode() for mail in around.mail.mails if (match := _EFFECT.search(mail.data)))
    if sum(mails.values()) != len(around.mail.mails):
        faults.append(f"{len(around.mail.mails)} mails, {sum(mails.values())} with the id of an effect")
    rows = await box.database.rows(
        "SELECT e.effect_id::text, e.connector, e.target, e.state, e.code, (SELECT count(*) FROM deedbox.event v"
        " WHERE v.job_id = e.job_id AND v.type = 'effect.unknown' AND v.payload ->> 'effect_id' = e.effect_id::text),"
        " ARRAY(SELECT source FROM deedbox.receipt r WHERE r.job_id = e.job_id AND r.effect_id = e.effect_id),"
        " e.sender_closed, e.attempt, e.look_ups FROM deedbox.effect e"
    )
    for effect_id, connector, target, state, code, unknowns, sources, closed, attempt, look_ups in rows:
        where = str(target) if connector == "http" else "mail"
        done = (times[where] if connector == "http" else mails)[str(effect_id)]
        ends[f"{where} {state}{' by look-up' if 'look_up' in list(sources) else ''}"] += 1  # pyright: ignore[reportArgumentType, reportCallIssue]
        about = f"effect {effect_id} at {where}"
        if done > 1:
            faults.append(f"{about}: done {done} times")
        if state == "completed" and done != 1:
            faults.append(f"{about}: completed, and done {done} times")
        if state == "failed" and done:
            faults.append(f"{about}: failed ({code}), and done")
        if state not in {"completed", "failed", "unknown"}:
            faults.append(f"{about}: still {state}")
        if where in {"searchable", "blind"} and str(effect_id) in around.http[where].doubted and not unknowns:
            faults.append(f"{about}: its answer was lost, and it was never unknown")
        if where in {"keyed", "searchable"} and state == "unknown" and (closed or done):
            # What a lost sender may still bring about is left to people; all else a look-up tells.
            faults.append(f"{about}: unknown ({code}) after {attempt} sendings and {look_ups} look-ups, and done {done} times")
    return faults, ends
