"""Deedbox as it runs in production: API, worker and dispatcher processes through the command line, on the database of a run."""

import asyncio
import json
import os
import secrets
import sys
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path
from typing import Any

import httpx2

from deedbox.access import add_key, add_user
from deedbox.store import switch
from deedbox.store.ids import IdSource
from deedbox.store.migrate import migrate
from deedbox.store.pool import Pool
from deedbox.store.transaction import transaction
from tests.failover.programs import Machine, free_ports

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True, slots=True)
class Size:
    """How many processes of each part."""

    api: int = 1
    worker: int = 1
    dispatch: int = 1

    def names(self) -> list[str]:
        """The processes by name: api0, api1, worker0 …"""
        parts = (("api", self.api), ("worker", self.worker), ("dispatch", self.dispatch))
        return [f"{part}{number}" for part, count in parts for number in range(count)]


@dataclass(frozen=True, slots=True)
class Ground:
    """What the processes stand on: the database by its two URLs, a directory for their logs, and what they are told.

    `targets` are HTTP targets as in `DEEDBOX_TARGETS`; each of `people` is a manager. Leases are in seconds.
    """

    owner_url: str
    app_url: str
    directory: Path
    targets: Sequence[Mapping[str, Any]]
    app: str = "tests.failover.app:app"
    lease_s: float = 5.0
    send_lease_s: float = 10.0
    people: Sequence[str] = ("approver",)

    def environment(self) -> dict[str, str]:
        """The environment of every process."""
        clean = {name: value for name, value in os.environ.items() if not name.startswith(("DEEDBOX_", "PG"))}
        return clean | {
            "AI_ACTIONS_ENABLED": "true",
            "DEEDBOX_DATABASE_URL": self.app_url,
            "DEEDBOX_TARGETS": json.dumps([dict(target) for target in self.targets]),
            "DEEDBOX_EGRESS_ALLOW": ",".join(str(target["base_url"]).removeprefix("http://") for target in self.targets),
            "DEEDBOX_LEASE_S": str(self.lease_s),
            "DEEDBOX_SEND_LEASE_S": str(self.send_lease_s),
            "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src"), *filter(None, [os.environ.get("PYTHONPATH")])]),
        }


@dataclass(slots=True)
class House:
    """The running processes, and what is needed to call them; the people share one password."""

    ground: Ground
    key: str
    password: str
    urls: list[str] = field(default_factory=list[str])
    processes: dict[str, asyncio.subprocess.Process] = field(default_factory=dict[str, asyncio.subprocess.Process])
    _places: dict[str, tuple[Machine, int]] = field(default_factory=dict[str, tuple[Machine, int]])
    _begun: dict[str, int] = field(default_factory=dict[str, int])

    def ended(self) -> list[str]:
        """The processes that ended by themselves; none may."""
        return [f"{name} ended with {one.returncode}" for name, one in self.processes.items() if one.returncode is not None]

    def place(self, name: str, machine: Machine, port: int) -> None:
        """Say where a process is to run, and at which port where it is an API."""
        self._places[name] = (machine, port)
        if name.startswith("api"):
            self.urls.append(f"http://{machine.address}:{port}")

    async def start(self, name: str) -> asyncio.subprocess.Process:
        """Start a process that has a place; one that ran before is followed at the same address."""
        machine, port = self._places[name]
        listening = {"DEEDBOX_HOST": machine.address, "DEEDBOX_PORT": str(port)}
        part = name.rstrip("0123456789")
        command = machine.command(sys.executable, "-m", "deedbox.cli.main", part, self.ground.app)
        with self._log(name).open("ab") as out:
            self._begun[name] = out.tell()
            process = await asyncio.create_subprocess_exec(
                *command, env=self.ground.environment() | listening, cwd=ROOT, stdout=out, stderr=out
            )
        self.processes[name] = process
        return process

    def said(self, name: str) -> str:
        """What a process has written since it was last started."""
        with self._log(name).open("rb") as log:
            log.seek(self._begun[name])
            return log.read().decode(errors="replace")

    def _log(self, name: str) -> Path:
        return self.ground.directory / f"{name}.log"

    async def close(self) -> None:
        """Kill what still runs."""
        for process in self.processes.values():
            if process.returncode is None:
                process.kill()
            await process.wait()


async def _prepare(ground: Ground) -> tuple[str, str]:
    """Schema, a service's key, the people's password, and the switch on."""
    await migrate(ground.owner_url)
    pool = Pool(ground.app_url, "prepare", size=3)
    await pool.open(wait=True)
    try:
        ids = await IdSource.read(pool)
        key = await add_key(pool, ids, "default", "caller", ["operator"], "the run")
        password = secrets.token_urlsafe(16)
        for name in ground.people:
            await add_user(pool, ids, "default", name, ["manager"], password)
        async with transaction(pool) as connection:
            await switch.turn_root(connection, "acts", is_on=True, changed_by=ground.people[0], reason="the run begins")
    finally:
        await pool.close()
    return key, password


@asynccontextmanager
async def house(ground: Ground, size: Size, machines: Mapping[str, Machine] | None = None) -> AsyncGenerator[House]:
    """Processes on the ground until the block ends; every API answers ready when it begins.

    `machines` says where each of `size.names()` runs; whoever is not named runs on this machine.
    """
    key, password = await _prepare(ground)
    one = House(ground, key, password)
    try:
        for name, port in zip(size.names(), free_ports(len(size.names())), strict=True):
            one.place(name, (machines or {}).get(name, Machine()), port)
            await one.start(name)
        await asyncio.gather(*(until_ready(one, url, within=60) for url in one.urls))
        yield one
    finally:
        await one.close()


async def until_ready(one: House, url: str, *, within: float) -> None:
    """Wait until an API says that it is ready. Raises TimeoutError, or RuntimeError where a process has ended."""
    async with asyncio.timeout(within), httpx2.AsyncClient(trust_env=False, timeout=3) as client:
        while True:
            if one.ended():
                raise RuntimeError("; ".join(one.ended()))
            try:
                if (await client.get(f"{url}/readyz")).status_code == HTTPStatus.OK:
                    return
            except httpx2.HTTPError:
                pass
            await asyncio.sleep(0.1)
