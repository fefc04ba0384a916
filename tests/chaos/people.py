"""The people: who decides, who cancels and takes up, who finds out about the unknown, and who turns the switch."""

import asyncio
import random
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any
from zlib import crc32

from deedbox.store.rounds import MOST_REDELIVERIES
from tests.chaos.load import Storm
from tests.chaos.provider import MovingProvider

NAMES = ("approver", "second")
_NO_ANSWER = frozenset({0, HTTPStatus.SERVICE_UNAVAILABLE})


@dataclass(frozen=True, slots=True)
class Off:
    """A time in which the switch was off: from the answer that said so until the first request to turn it on was sent.

    By the monotonic clock, in seconds; `in_flight` is how many acts were on the wire when it went off.
    """

    since: float
    until: float
    in_flight: int


@dataclass(slots=True)
class People:
    """What they do, each in a loop of its own until told to stop."""

    storm: Storm
    providers: Mapping[str, MovingProvider]
    rng: random.Random
    offs: list[Off] = field(default_factory=list[Off])
    done: Counter[str] = field(default_factory=Counter[str])

    def url(self) -> str:
        """One of the APIs."""
        return self.rng.choice(self.storm.house.urls)

    async def decide(self, stop: asyncio.Event) -> None:
        """Decide whatever waits; one in eight is rejected, always the same ones, however often it is asked."""
        while not stop.is_set():
            waiting = (await self.storm.get(f"{self.url()}/api/approvals")).get("approvals", [])
            for start in range(0, len(waiting), 4):
                await asyncio.gather(*(self._decide(line["approval_id"]) for line in waiting[start : start + 4]))
            await asyncio.sleep(0.3)

    async def _decide(self, approval_id: str) -> None:
        """Say what its number says; as many people as are asked for, one after the other or at once, and perhaps one twice."""
        card = await self.storm.get(f"{self.url()}/api/approvals/{approval_id}")
        if "digest" not in card:
            return
        decision = "reject" if crc32(approval_id.encode()) % 8 == 0 else "approve"
        voters = self.rng.sample(NAMES, min(len(NAMES), int(card["quorum"])))
        if self.rng.random() < 0.2:
            voters.append(voters[0])
        if self.rng.random() < 0.5:
            await asyncio.gather(*(self._vote(approval_id, card["digest"], decision, name) for name in voters))
            return
        for name in voters:
            await self._vote(approval_id, card["digest"], decision, name)

    async def _vote(self, approval_id: str, digest: str, decision: str, name: str) -> None:
        sent = {"decision": decision, "digest": digest, "reason": "as its number says"}
        self.storm.tried.setdefault(approval_id, set()).add(decision)
        self.storm.votes.add((approval_id, name, decision))
        where = f"{self.url()}/api/approvals/{approval_id}/decision"
        status, answer = await self.storm.post(where, sent, self.storm.bearers[name])
        if status == HTTPStatus.OK:
            self.storm.kept.add((approval_id, name, decision))
            if answer["state"] == "pending":
                self.done["first vote"] += 1
            else:
                self.storm.confirmed[approval_id] = decision
                self.done[decision] += 1
        elif status not in _NO_ANSWER | {HTTPStatus.CONFLICT}:
            self.storm.faults.append(f"approval {approval_id}: answered {status} {answer.get('code')}")

    async def cancel(self, stop: asyncio.Event) -> None:
        """Cancel a job now and then, in whatever state it is found."""
        while not stop.is_set():
            await asyncio.sleep(self.rng.uniform(0.5, 2))
            recent = [call.job_id for call in self.storm.calls[-30:] if call.job_id is not None]
            if not recent:
                continue
            job_id = self.rng.choice(recent)
            self.storm.cancels.add(job_id)
            where = f"{self.url()}/api/jobs/{job_id}/cancel"
            status, answer = await self.storm.post(where, {"reason": "changed our mind"}, self.storm.approver)
            self.done[f"cancel {status}"] += 1
            if status == HTTPStatus.OK:
                self.storm.canceled.add(job_id)
            elif status not in _NO_ANSWER | {HTTPStatus.ACCEPTED, HTTPStatus.CONFLICT}:
                self.storm.faults.append(f"cancel of {job_id}: answered {status} {answer.get('code')}")

    async def take_up(self, stop: asyncio.Event) -> None:
        """Decide about whatever is parked: an operator takes it up, its caller delivers it again, or an operator closes it."""
        while not stop.is_set():
            await asyncio.sleep(0.5)
            for line in (await self.storm.get(f"{self.url()}/api/jobs?state=failed_retryable")).get("jobs", []):
                job_id = str(line["job_id"])
                way = crc32(job_id.encode()) % 4
                # Its caller's deliveries take it up three times; after that an operator does.
                if way == 0 and int(line["round"]) <= MOST_REDELIVERIES:
                    await self.storm.redeliver(job_id)
                elif way == 1:
                    self.storm.closes.add(job_id)
                    if await self._steer(job_id, "close") == HTTPStatus.OK:
                        self.storm.closed.add(job_id)
                else:
                    self.storm.taken_up += await self._steer(job_id, "retry") == HTTPStatus.ACCEPTED

    async def _steer(self, job_id: str, verb: str) -> int:
        where = f"{self.url()}/api/jobs/{job_id}/{verb}"
        status, answer = await self.storm.post(where, {"reason": "as its number says"}, self.storm.approver)
        if status not in _NO_ANSWER | {HTTPStatus.OK, HTTPStatus.ACCEPTED, HTTPStatus.CONFLICT}:
            self.storm.faults.append(f"{verb} of {job_id}: answered {status} {answer.get('code')}")
        return status

    async def find_out(self, stop: asyncio.Event) -> None:
        """Settle what is unknown, by evidence alone; a part of the blind ones is left as it is, for ever."""
        while not stop.is_set():
            await asyncio.sleep(0.5)
            for effect in (await self.storm.get(f"{self.url()}/api/effects?state=unknown&limit=500")).get("effects", []):
                if effect["target"] != "blind":
                    await self._verb(effect["effect_id"], "look_up", {}, NAMES[0])
                elif not left_alone(effect["effect_id"]):
                    await self._ask_around(effect)

    async def _ask_around(self, effect: Mapping[str, Any]) -> None:
        """Look into the blind provider's own books, as a person would by telephone, and say what they show."""
        effect_id = str(effect["effect_id"])
        note = self.providers["blind"].by_key.get(effect_id)
        if note is not None:
            evidence = {"evidence": {"provider_id": note["id"]}, "reason": "it is in their books"}
            await self._verb(effect_id, "confirm", evidence, NAMES[0])
        elif effect["sender_closed"]:
            # Two persons are needed; the first is refused and remembered.
            for name in NAMES:
                await self._verb(effect_id, "disprove", {"reason": "it is not in their books"}, name)

    async def _verb(self, effect_id: str, verb: str, body: dict[str, Any], name: str) -> None:
        where = f"{self.url()}/api/effects/{effect_id}/{verb}"
        status, answer = await self.storm.post(where, body, self.storm.bearers[name])
        if status == HTTPStatus.OK:
            self.done[verb] += 1
        elif status not in _NO_ANSWER | {HTTPStatus.CONFLICT}:
            self.storm.faults.append(f"{verb} of {effect_id}: answered {status} {answer.get('code')}")

    async def turn(self, stop: asyncio.Event) -> None:
        """Turn the switch off and on again, and keep when it was surely off. It is on when this returns."""
        while not stop.is_set():
            await _pause(stop, self.rng.uniform(4, 9))
            state = await self._turn(is_on=False)
            since = time.monotonic()
            await _pause(stop, self.rng.uniform(1, 4))
            self.offs.append(Off(since, time.monotonic(), int(state["in_flight"])))
            await self._turn(is_on=True)

    async def _turn(self, *, is_on: bool) -> dict[str, Any]:
        body = {"on": is_on, "reason": "as the clock says"}
        while True:
            status, answer = await self.storm.post(f"{self.url()}/api/switch", body, self.storm.approver, method="PUT")
            if status == HTTPStatus.OK:
                return answer
            if status not in _NO_ANSWER:
                self.storm.faults.append(f"switch: answered {status} {answer.get('code')}")
            await asyncio.sleep(0.2)


def left_alone(effect_id: str) -> bool:
    """Whether nobody ever asks about this effect."""
    return crc32(effect_id.encode()) % 3 == 0


async def _pause(stop: asyncio.Event, pause_s: float) -> None:
    """Wait, but no longer than until told to stop."""
    try:
        async with asyncio.timeout(pause_s):
            await stop.wait()
    except TimeoutError:
        return
