"""The callers: known keys, each delivered one to three times, some at once to every API, until each has its 202."""

import asyncio
import random
from dataclasses import dataclass, field
from http import HTTPStatus
from itertools import count
from typing import Any

from tests.chaos.app import Target
from tests.failover.load import Call, Load

TARGETS: tuple[Target, ...] = ("keyed", "searchable", "blind")


@dataclass(slots=True)
class Storm(Load):
    """Everything that was asked, by callers and by people, and everything that was answered.

    `cancels` are the jobs that somebody asked to cancel, `canceled` those of which it was confirmed at once; `tried` are all
    decisions that were sent, `confirmed` the one of each approval that was confirmed; `votes` and `kept` are the same of each
    person. `closes` are the parked jobs that somebody asked to close, `closed` those of which it was confirmed.
    """

    rng: random.Random = field(default_factory=random.Random)
    deliveries: int = 0
    cancels: set[str] = field(default_factory=set[str])
    canceled: set[str] = field(default_factory=set[str])
    tried: dict[str, set[str]] = field(default_factory=dict[str, set[str]])
    confirmed: dict[str, str] = field(default_factory=dict[str, str])
    votes: set[tuple[str, str, str]] = field(default_factory=set[tuple[str, str, str]])
    kept: set[tuple[str, str, str]] = field(default_factory=set[tuple[str, str, str]])
    closes: set[str] = field(default_factory=set[str])
    closed: set[str] = field(default_factory=set[str])
    taken_up: int = 0
    redelivered: int = 0
    """How often a delivery found its job parked and took it up."""

    async def submit(self, stop: asyncio.Event, *, per_s: float) -> None:
        """Start `per_s` calls a second until told to stop, then wait until each delivery of each of them has its 202."""
        async with asyncio.TaskGroup() as group:
            for number in count():
                if stop.is_set():
                    break
                action, body = self._piece(number)
                call = Call(f"piece-{number}", action, body)
                self.calls.append(call)
                group.create_task(self._deliver_often(call, self.rng.choice((1, 1, 2, 3)), at_once=self.rng.random() < 0.5))
                await asyncio.sleep(self.rng.expovariate(per_s))

    def _piece(self, number: int) -> tuple[str, dict[str, Any]]:
        """What is asked for: some of it takes longer than a lease."""
        pause_s = self.rng.choice((0.0, 0.0, 0.1, 0.5, 3.0))
        kind = self.rng.random()
        if kind < 0.2:
            return "work_piece", {"number": number, "pause_s": pause_s}
        if kind < 0.35:
            return "work_piece", {"number": number, "pause_s": self.rng.choice((0.0, 1.0, 3.0, 4.0)), "quiet": True}
        if kind < 0.5:
            return "try_piece", {"number": number, "pause_s": min(pause_s, 0.5), "fails": self.rng.choice((0, 0, 1, 2, 4))}
        targets = [self.rng.choice(TARGETS) for _ in range(self.rng.choice((1, 1, 2)))]
        action = "post_piece" if kind < 0.85 else "post_twice"
        return action, {"number": number, "pause_s": min(pause_s, 0.5), "targets": targets}

    async def _deliver_often(self, call: Call, times: int, *, at_once: bool) -> None:
        """Deliver one key several times, each until it is accepted."""
        self.deliveries += times
        if at_once:
            await asyncio.gather(*(self.deliver(call, first=place) for place in range(times)))
            return
        for place in range(times):
            await self.deliver(call, first=place)
            await asyncio.sleep(self.rng.uniform(0, 2))

    async def redeliver(self, job_id: str) -> None:
        """Let the caller of a parked job deliver its key once more, as callers do that had no answer."""
        call = next((call for call in self.calls if call.job_id == job_id), None)
        if call is None:
            return
        self.deliveries += 1
        where = f"{self.rng.choice(self.house.urls)}/api/actions/{call.action}/jobs"
        headers = {"Authorization": f"Bearer {self.house.key}", "Idempotency-Key": call.key}
        status, answer = await self.post(where, call.body, headers)
        if status == HTTPStatus.ACCEPTED and answer["job_id"] != job_id:
            self.faults.append(f"{call.key}: first {job_id}, then {answer['job_id']}")
        elif status not in {0, HTTPStatus.ACCEPTED, HTTPStatus.SERVICE_UNAVAILABLE}:
            self.faults.append(f"{call.key}: redelivered, answered {status} {answer.get('code')}")
        self.redelivered += bool(answer.get("taken_up"))
