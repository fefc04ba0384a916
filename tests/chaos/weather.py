"""The faults: what is killed, frozen, restarted and cut, at random from one seed, and who brings the processes back."""

import asyncio
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field

from deedbox.cli.output import Exit
from tests.chaos.engine import Engine
from tests.chaos.provider import MovingProvider
from tests.failover.house import House

_READY = "is ready"
"""What a process writes once it has started."""


@dataclass(frozen=True, slots=True)
class Frozen:
    """A process that stood still, from when to when by the monotonic clock."""

    name: str
    since: float
    until: float


@dataclass(slots=True)
class Weather:
    """Faults at random, and a supervisor as any installation has one."""

    house: House
    engine: Engine
    providers: Mapping[str, MovingProvider]
    rng: random.Random
    kills: Counter[str] = field(default_factory=Counter[str])
    frozen: list[Frozen] = field(default_factory=list[Frozen])
    waited: Counter[str] = field(default_factory=Counter[str])
    """How often a process ended at its start because the database was away, and was started again."""
    faults: list[str] = field(default_factory=list[str])
    _killed: set[int] = field(default_factory=set[int])

    async def supervise(self, name: str, stop: asyncio.Event) -> None:
        """Start a process again whenever it ends. One that ends without having been killed is a fault, but for one reason."""
        stopping = asyncio.create_task(stop.wait())
        try:
            while not stop.is_set():
                process = self.house.processes[name]
                ending = asyncio.create_task(process.wait())
                await asyncio.wait({stopping, ending}, return_when=asyncio.FIRST_COMPLETED)
                if not ending.done():
                    ending.cancel()
                    return
                if process.pid in self._killed:
                    self._killed.discard(process.pid)
                elif process.returncode == Exit.NOT_THERE and _READY not in self.house.said(name):
                    self.waited[name.rstrip("0123456789")] += 1
                    await asyncio.sleep(0.3)
                else:
                    self.faults.append(f"{name} ended by itself with exit code {process.returncode}")
                await self.house.start(name)
        finally:
            stopping.cancel()

    async def strike(self, stop: asyncio.Event, pace_s: float) -> None:
        """One fault every `pace_s` seconds on average, until told to stop; what stands still then is woken."""
        async with asyncio.TaskGroup() as group:
            while await self._calm(stop, self.rng.uniform(0.4, 1.6) * pace_s):
                kind = self.rng.choices(("kill", "freeze", "cut", "refuse"), (5, 5, 3, 1))[0]
                if kind == "kill":
                    self._kill(self.rng.choice(list(self.house.processes)))
                elif kind == "freeze":
                    group.create_task(self._freeze(stop))
                elif kind == "cut":
                    await self.engine.cut(self.rng, 8)
                else:
                    provider = self.providers[self.rng.choice(list(self.providers))]
                    group.create_task(provider.refuse_for(self.rng.uniform(0.5, 2)))

    async def restart(self, stop: asyncio.Event, pace_s: float) -> None:
        """Restart PostgreSQL every `pace_s` seconds on average, until told to stop."""
        while await self._calm(stop, self.rng.uniform(0.6, 1.4) * pace_s):
            await self.engine.restart(self.rng.choice(("fast", "immediate")), self.rng.choice((0.0, 0.2, 1.0)))

    def _kill(self, name: str) -> None:
        process = self.house.processes[name]
        if process.returncode is None:
            self._killed.add(process.pid)
            self.kills[name.rstrip("0123456789")] += 1
            process.kill()

    async def _freeze(self, stop: asyncio.Event) -> None:
        """Let a process stand still for longer than its lease, in the middle of whatever it does; workers twice as often."""
        names = list(self.house.processes)
        [name] = self.rng.choices(names, [2 if name.startswith("worker") else 1 for name in names])
        process = self.house.processes[name]
        if process.returncode is not None:
            return
        lease_s = self.house.ground.send_lease_s if name.startswith("dispatch") else self.house.ground.lease_s
        since = time.monotonic()
        os.kill(process.pid, signal.SIGSTOP)
        try:
            await self._calm(stop, lease_s * self.rng.uniform(1.2, 2.6))
        finally:
            if process.returncode is None:
                with suppress(ProcessLookupError):
                    os.kill(process.pid, signal.SIGCONT)
            self.frozen.append(Frozen(name, since, time.monotonic()))

    @staticmethod
    async def _calm(stop: asyncio.Event, pause_s: float) -> bool:
        """Wait; False when told to stop meanwhile."""
        try:
            async with asyncio.timeout(pause_s):
                await stop.wait()
        except TimeoutError:
            return True
        return False
