"""The callers and the person: jobs submitted under known keys until each has its 202, and approvals decided as they come."""

import asyncio
from collections import Counter
from dataclasses import dataclass, field
from http import HTTPStatus
from itertools import count
from typing import Any

import httpx2

from tests.failover.house import House

PATIENCE_S = 5.0
"""How long a caller waits for an answer before it sends the same key again."""

_AGAIN_S = 0.5


@dataclass(slots=True)
class Call:
    """One key with its payload, and the job that the first 202 named."""

    key: str
    action: str
    body: dict[str, Any]
    job_id: str | None = None


@dataclass(slots=True)
class Load:
    """Everything that was asked, and everything that was answered."""

    house: House
    client: httpx2.AsyncClient
    calls: list[Call] = field(default_factory=list[Call])
    answers: Counter[str] = field(default_factory=Counter[str])
    decided: set[str] = field(default_factory=set[str])
    faults: list[str] = field(default_factory=list[str])
    reconciled: int = 0
    bearers: dict[str, dict[str, str]] = field(default_factory=dict[str, dict[str, str]])

    async def submit(self, stop: asyncio.Event, *, per_s: float) -> None:
        """Start `per_s` calls a second until told to stop, then wait until each of them has its 202."""
        async with asyncio.TaskGroup() as group:
            for number in count():
                if stop.is_set():
                    break
                posting = number % 3 == 0
                # Every fourth of the rest is still running when the leader dies, wherever in its time that falls.
                body = {"number": number} if posting else {"number": number, "pause_s": 2.0 if number % 4 == 0 else 0.05}
                call = Call(f"piece-{number}", "post_piece" if posting else "work_piece", body)
                self.calls.append(call)
                group.create_task(self.deliver(call))
                await asyncio.sleep(1 / per_s)

    async def deliver(self, call: Call, *, first: int | None = None) -> None:
        """Send the call until it is accepted, as a caller does that may not lose it. A second job for a key is a fault.

        `first` is the number of the API that is asked first; the others follow in turn.
        """
        for number in count(len(call.key) if first is None else first):
            url = self.house.urls[number % len(self.house.urls)]
            status, answer = await self.post(
                f"{url}/api/actions/{call.action}/jobs",
                call.body,
                {"Authorization": f"Bearer {self.house.key}", "Idempotency-Key": call.key},
            )
            if status == HTTPStatus.ACCEPTED:
                if call.job_id not in {None, answer["job_id"]}:
                    self.faults.append(f"{call.key}: first {call.job_id}, then {answer['job_id']}")
                call.job_id = call.job_id or answer["job_id"]
                return
            if status not in {0, HTTPStatus.SERVICE_UNAVAILABLE}:
                self.faults.append(f"{call.key}: answered {status} {answer.get('code')}")
                return
            await asyncio.sleep(_AGAIN_S)

    async def replay(self) -> None:
        """Send every key once more: each must name the job that it named before."""
        for start in range(0, len(self.calls), 50):
            await asyncio.gather(*(self.deliver(call) for call in self.calls[start : start + 50]))

    async def log_in(self) -> None:
        """Log all people in; the first of them decides."""
        for name in self.house.ground.people:
            body = {"name": name, "password": self.house.password}
            status, answer = await self.post(f"{self.house.urls[0]}/api/login", body, {})
            if status != HTTPStatus.OK:
                raise RuntimeError(f"{name} cannot log in: {status} {answer}")
            self.bearers[name] = {"Authorization": f"Bearer {answer['token']}"}

    @property
    def approver(self) -> dict[str, str]:
        """The header by which the first of the people is known."""
        return self.bearers[self.house.ground.people[0]]

    async def decide(self, stop: asyncio.Event) -> None:
        """Approve whatever waits, and ask about whatever is unknown, until told to stop."""
        number = 0
        while not stop.is_set():
            number += 1
            url = self.house.urls[number % len(self.house.urls)]
            waiting = (await self.get(f"{url}/api/approvals")).get("approvals", [])
            for start in range(0, len(waiting), 4):
                await asyncio.gather(*(self._approve(url, line["approval_id"]) for line in waiting[start : start + 4]))
            for effect in (await self.get(f"{url}/api/effects?state=unknown")).get("effects", []):
                await self._look_up(url, effect["effect_id"])
            await asyncio.sleep(0.3)

    async def _approve(self, url: str, approval_id: str) -> None:
        where = f"{url}/api/approvals/{approval_id}"
        digest = (await self.get(where)).get("digest")
        if digest is None:
            return
        sent = {"decision": "approve", "digest": digest}
        status, answer = await self.post(f"{where}/decision", sent, self.approver)
        if status == HTTPStatus.OK:
            self.decided.add(approval_id)
        elif status not in {0, HTTPStatus.SERVICE_UNAVAILABLE, HTTPStatus.CONFLICT}:
            self.faults.append(f"approval {approval_id}: answered {status} {answer.get('code')}")

    async def _look_up(self, url: str, effect_id: str) -> None:
        status, _ = await self.post(f"{url}/api/effects/{effect_id}/look_up", {}, self.approver)
        self.reconciled += status == HTTPStatus.OK

    async def get(self, url: str) -> dict[str, Any]:
        """What is there, or nothing while it cannot be said."""
        try:
            answer = await self.client.get(url, headers=self.approver, timeout=PATIENCE_S)
        except httpx2.HTTPError as error:
            self.answers[type(error).__name__] += 1
            return {}
        self.answers[str(answer.status_code)] += 1
        if answer.status_code not in {HTTPStatus.OK, HTTPStatus.SERVICE_UNAVAILABLE}:
            self.faults.append(f"{url}: answered {answer.status_code}")
        return answer.json() if answer.status_code == HTTPStatus.OK else {}

    async def post(
        self, url: str, body: dict[str, Any], headers: dict[str, str], *, method: str = "POST"
    ) -> tuple[int, dict[str, Any]]:
        """Status and body; status 0 where no answer came."""
        try:
            answer = await self.client.request(method, url, json=body, headers=headers, timeout=PATIENCE_S)
        except httpx2.HTTPError as error:
            self.answers[type(error).__name__] += 1
            return 0, {}
        self.answers[str(answer.status_code)] += 1
        return answer.status_code, answer.json()
