"""What is true and what is said, side by side: a write probe through HAProxy, and the readiness of every API."""

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from http import HTTPStatus

import httpx2
import psycopg

from tests.failover.cluster import Cluster
from tests.failover.house import House

_EVERY_S = 0.1
_PATIENCE_S = 10.0
"""A write may wait so long for the second node before it counts as not written, in seconds."""

_LONGEST_S = 15.0
"""An answer about readiness that takes longer is none, in seconds."""

_GRACE_S = 0.5
"""What is said within this time after a fault is not judged, in seconds: the question may have been asked before it."""


@dataclass(frozen=True, slots=True)
class Look:
    """One look, from when to when by the monotonic clock, whether the answer was yes, and what was said if not."""

    began: float
    ended: float
    yes: bool
    said: str = ""


@dataclass(slots=True)
class Outage:
    """One fault: what was hit, how and when, and what followed, in seconds after it; `leads` where the leader was hit."""

    node: str
    mode: str
    killed_at: float
    leaderless_s: float = 0.0
    ready_after_s: float = 0.0
    slowest_s: float = 0.0
    leads: bool = True
    said_not_ready: int = 0
    said_ready: int = 0


@dataclass(slots=True)
class Watch:
    """All looks of a run."""

    cluster: Cluster
    house: House
    writes: list[Look] = field(default_factory=list[Look])
    ready: dict[str, list[Look]] = field(default_factory=dict[str, list[Look]])

    async def run(self, stop: asyncio.Event) -> None:
        """Look until told to stop."""
        async with await self._connect() as connection:
            await connection.execute("CREATE TABLE public.failover_probe (number bigint PRIMARY KEY)")
        async with asyncio.TaskGroup() as group:
            group.create_task(self._write(stop))
            for url in self.house.urls:
                self.ready[url] = []
                group.create_task(self._ask(url, stop))

    async def lost_writes(self) -> int:
        """How many probes that were confirmed are not there: the cluster itself has lost them."""
        confirmed = [number for number, look in enumerate(self.writes) if look.yes]
        async with await self._connect() as connection:
            cursor = await connection.execute("SELECT number FROM public.failover_probe")
            return len(set(confirmed) - {row[0] for row in await cursor.fetchall()})

    async def _connect(self) -> "psycopg.AsyncConnection[tuple[int, ...]]":
        return await psycopg.AsyncConnection.connect(
            self.cluster.url("deedbox_owner"), autocommit=True, connect_timeout=2, options="-c statement_timeout=2s"
        )

    async def _write(self, stop: asyncio.Event) -> None:
        while not stop.is_set():
            began = time.monotonic()
            try:
                async with asyncio.timeout(_PATIENCE_S), await self._connect() as connection:
                    await connection.execute("INSERT INTO public.failover_probe VALUES (%s)", [len(self.writes)])
                    said = ""
            except (psycopg.Error, OSError, TimeoutError) as error:
                said = f"{type(error).__name__}: {str(error).splitlines()[:1]}"
            self.writes.append(Look(began, time.monotonic(), not said, said))
            await asyncio.sleep(_EVERY_S)

    async def _ask(self, url: str, stop: asyncio.Event) -> None:
        async with httpx2.AsyncClient(trust_env=False, timeout=_LONGEST_S) as client:
            while not stop.is_set():
                began = time.monotonic()
                try:
                    ready = (await client.get(f"{url}/readyz")).status_code == HTTPStatus.OK
                except httpx2.HTTPError:
                    ready = False
                self.ready[url].append(Look(began, time.monotonic(), ready))
                await asyncio.sleep(_EVERY_S)


def judge(outage: Outage, writes: list[Look], ready: Mapping[str, list[Look]]) -> None:
    """Fill in what the looks say about a kill. Raises LookupError where no write or no readiness followed."""
    after = [look for look in writes if look.began > outage.killed_at]
    back = next((number for number, look in enumerate(after) if look.yes), None)
    if back is None:
        raise LookupError(f"nothing could be written after {outage.node} was killed")
    outage.leaderless_s = after[back].ended - outage.killed_at
    # No write went through before this moment, so whoever said "ready" in between, from first to last, was wrong.
    until = after[back - 1].began if back else outage.killed_at
    for looks in ready.values():
        inside = [look for look in looks if look.began > outage.killed_at + _GRACE_S and look.ended < until]
        during = [look.ended - look.began for look in looks if look.ended > outage.killed_at and look.began < after[back].ended]
        outage.slowest_s = max([outage.slowest_s, *during])
        outage.said_ready += sum(look.yes for look in inside)
        outage.said_not_ready += sum(not look.yes for look in inside)
        again = next((look.ended for look in looks if look.yes and look.ended > after[back].began), None)
        if again is None:
            raise LookupError(f"an API was not ready again after {outage.node} was killed")
        outage.ready_after_s = max(outage.ready_after_s, again - after[back].ended)
