"""One whole run: engine, house, load, people and weather, then calm, and what the checker found."""

import asyncio
import random
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Any

import httpx2
import psycopg

from tests.chaos.attempts import WATCH
from tests.chaos.checker import Verdict, check
from tests.chaos.engine import Engine, engine
from tests.chaos.load import TARGETS, Storm
from tests.chaos.people import NAMES, People, left_alone
from tests.chaos.provider import MovingProvider
from tests.chaos.weather import Weather
from tests.failover.checker import Reading, read
from tests.failover.house import Ground, Size, house, until_ready

LEASE_S = 2.0
SEND_LEASE_S = 3.0
_WITHIN_S = 180.0
"""How long after the last fault everything may take to end, in seconds."""

_LIVE = """
SELECT q.job_id::text, q.state, e.effect_id::text, e.state, e.target, coalesce(e.sender_closed, false)
FROM deedbox.queue q LEFT JOIN deedbox.effect e ON e.job_id = q.job_id AND e.state NOT IN ('completed', 'failed', 'canceled')
"""


@dataclass(frozen=True, slots=True)
class Plan:
    """What to do: faults for `seconds`, drawn from `seed`; one process fault and one restart per that many seconds."""

    seed: int
    seconds: float = 600.0
    per_s: float = 8.0
    fault_every_s: float = 2.0
    restart_every_s: float = 6.0
    size: Size = field(default_factory=lambda: Size(2, 2, 2))
    app: str = "tests.chaos.app:app"


@dataclass(slots=True)
class Report:
    """What happened; the run passed where `faults` is empty."""

    plan: Plan
    storm: Storm
    people: People
    weather: Weather
    engine: Engine
    providers: Mapping[str, MovingProvider]
    verdict: Verdict
    calm_s: float
    seconds: float
    faults: list[str]

    def lines(self) -> list[str]:
        """The report for people."""
        found, storm, weather, plan, verdict = self.verdict.found, self.storm, self.weather, self.plan, self.verdict
        broken = Counter(one.fault for provider in self.providers.values() for one in provider.arrivals if one.fault != "none")
        refused = sum(one.refusals for one in self.providers.values())
        stood = Counter(one.name[:-1] for one in weather.frozen)
        told = [
            f"seed {plan.seed}: faults for {plan.seconds:.0f} s, calm {self.calm_s:.0f} s later, {self.seconds:.0f} s in all",
            f"jobs {found.jobs} for {len(storm.calls)} keys in {storm.deliveries} deliveries, 202s {storm.answers['202']}",
            f"killed {weather.kills.total()}: {_counts(weather.kills)}",
            f"frozen beyond the lease {stood.total()}: {_counts(stood)}",
            f"PostgreSQL restarted {self.engine.restarts.total()}: {_counts(self.engine.restarts)}",
            f"connections cut {self.engine.cuts}; starts that met no database: {_counts(weather.waited)}",
            f"switched off {len(self.people.offs)} times, judged {verdict.switched}; arrived then {verdict.begun_on}",
            (
                f"ends {_counts(found.ends)}; attempts taken over {found.rescued}, jobs taken up {storm.taken_up}"
                f" by operators and {storm.redelivered} by their callers, closed {len(storm.closed)}"
            ),
            f"attempts {verdict.attempts.claims}: {_counts(verdict.attempts.moves)}; stale reports {verdict.attempts.stale}",
            f"effects {_counts(found.effects)}; providers did {found.performed} things",
            f"answers broken {broken.total()}: {_counts(broken)}; connections refused {refused} times for a while",
            f"were unknown {verdict.unknown.total()}, and ended: {_counts(verdict.unknown)}",
            (
                f"people: {_counts(self.people.done)}; approved by two {verdict.two_votes};"
                f" audit entries {verdict.audited}, chain checked"
            ),
            f"answers {_counts(storm.answers)}",
        ]
        told += [f"FAULT {fault}" for fault in self.faults[:40]]
        return [*told, "nothing lost, nothing twice" if not self.faults else f"{len(self.faults)} faults"]


def _counts(counter: Counter[str]) -> str:
    return ", ".join(f"{name} {count}" for name, count in sorted(counter.items())) or "none"


async def run(plan: Plan, *, keep: bool = False) -> Report:
    """Do what the plan says. Raises EmbeddedError where the database itself does not come back."""
    began = time.monotonic()
    async with AsyncExitStack() as stack:
        database = await stack.enter_async_context(engine(keep=keep))
        providers = {name: MovingProvider(honours_keys=name == "keyed", name=name, seed=plan.seed) for name in TARGETS}
        for provider in providers.values():
            await stack.enter_async_context(provider.running())
        one = await stack.enter_async_context(house(_ground(plan, database, providers), plan.size))
        async with await psycopg.AsyncConnection[Any].connect(database.info.owner_url, autocommit=True) as connection:
            await connection.execute(WATCH)
        limits = httpx2.Limits(max_connections=200, max_keepalive_connections=50)
        client = await stack.enter_async_context(httpx2.AsyncClient(trust_env=False, limits=limits))
        storm = Storm(one, client, rng=_dice(plan, "load"))
        people = People(storm, providers, _dice(plan, "people"))
        weather = Weather(one, database, providers, _dice(plan, "weather"))
        await storm.log_in()
        calm_s, faults = await _live_through(plan, people, weather)
        await storm.replay()
        async with await psycopg.AsyncConnection[Any].connect(database.info.owner_url, autocommit=True) as connection:
            verdict = await check(
                connection, database.info.app_url, storm, providers, people.offs, weather.frozen, SEND_LEASE_S
            )
        faults = [*faults, *storm.faults, *weather.faults, *verdict.found.faults]
        # Where something was found, the logs say what.
        database.keep = keep or bool(faults)
        seconds = time.monotonic() - began
        return Report(plan, storm, people, weather, database, providers, verdict, calm_s, seconds, faults)


def _dice(plan: Plan, name: str) -> random.Random:
    """Draws of their own for each part, so that the timing of one does not change those of another."""
    return random.Random(f"{plan.seed}-{name}")  # noqa: S311 -- faults, no secrets


def _ground(plan: Plan, database: Engine, providers: Mapping[str, MovingProvider]) -> Ground:
    declared: dict[str, dict[str, Any]] = {
        "keyed": {"capability": "native_key", "key_ttl_s": 86400, "proven": "2026-11-30 by this run, whose provider counts"},
        "searchable": {"capability": "searchable", "look_up": "/notes/{key}"},
        "blind": {},
    }
    targets = [{"name": name, "base_url": providers[name].url, **declared[name]} for name in TARGETS]
    info = database.info
    return Ground(info.owner_url, info.app_url, database.state, targets, plan.app, LEASE_S, SEND_LEASE_S, NAMES)


async def _live_through(plan: Plan, people: People, weather: Weather) -> tuple[float, list[str]]:
    """The faults, and the calm after them; how long that took in seconds, and what did not end."""
    storm_over, over = asyncio.Event(), asyncio.Event()
    async with asyncio.TaskGroup() as group:
        for name in weather.house.processes:
            group.create_task(weather.supervise(name, over))
        for task in (people.decide, people.take_up, people.find_out):
            group.create_task(task(over))
        async with asyncio.TaskGroup() as wild:
            for provider in weather.providers.values():
                provider.stormy = True
            wild.create_task(people.storm.submit(storm_over, per_s=plan.per_s))
            for task in (people.cancel, people.turn):
                wild.create_task(task(storm_over))
            wild.create_task(weather.strike(storm_over, plan.fault_every_s))
            wild.create_task(weather.restart(storm_over, plan.restart_every_s))
            await asyncio.sleep(plan.seconds)
            for provider in weather.providers.values():
                provider.stormy = False
            storm_over.set()
        calm = time.monotonic()
        faults = await _until_over(weather)
        over.set()
    for url in weather.house.urls:
        await until_ready(weather.house, url, within=60)
    return time.monotonic() - calm, faults


async def _until_over(weather: Weather) -> list[str]:
    """Wait until nothing is under way but what only a person can settle; returns faults for what still is at the end."""
    left: list[str] = []
    try:
        async with asyncio.timeout(_WITHIN_S):
            while True:
                try:
                    left = await _left(weather)
                except psycopg.OperationalError:
                    left = ["cannot be asked"]
                if not left:
                    return []
                await asyncio.sleep(0.3)
    except TimeoutError:
        return [f"still under way {_WITHIN_S:.0f} s after the last fault: {line}" for line in left]


async def _left(weather: Weather) -> list[str]:
    connect = psycopg.AsyncConnection[Any].connect
    connection: Reading
    async with await connect(weather.engine.info.owner_url, autocommit=True, connect_timeout=2) as connection:
        rows = await read(connection, _LIVE)
    # One that is unknown and one that is pending may belong to the same job: each line is judged by itself.
    return [" ".join(map(str, row)) for row in rows if not _needs_a_person(row, weather.providers)]


def _needs_a_person(row: tuple[Any, ...], providers: Mapping[str, MovingProvider]) -> bool:
    """Whether an effect is unknown, and rightly stays so until a person says more than this run's people may."""
    _, job_state, effect_id, state, target, closed = row
    if job_state != "dispatching" or state != "unknown":
        return False
    if target == "blind" and left_alone(effect_id):
        return True
    # Its sender was lost: that the provider has nothing is believed after an hour only.
    return not closed and effect_id not in providers[target].by_key
