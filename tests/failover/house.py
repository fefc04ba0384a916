"""Deedbox as it runs in production: API, worker and dispatcher processes through the command line, behind HAProxy's port."""

import asyncio
import json
import os
import secrets
import sys
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path

import httpx2

from deedbox.access import add_key, add_user
from deedbox.store import switch
from deedbox.store.ids import IdSource
from deedbox.store.migrate import migrate
from deedbox.store.pool import make_pool
from deedbox.store.transaction import transaction
from tests.failover.cluster import Cluster
from tests.failover.programs import Machine, free_ports

ROOT = Path(__file__).resolve().parents[2]
APP = "tests.failover.app:app"
LEASE_S = 5.0
SEND_LEASE_S = 10.0


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


@dataclass(slots=True)
class House:
    """The running processes, and what is needed to call them."""

    urls: list[str]
    key: str
    password: str
    processes: dict[str, asyncio.subprocess.Process] = field(default_factory=dict[str, asyncio.subprocess.Process])

    def ended(self) -> list[str]:
        """The processes that ended by themselves; none may."""
        return [f"{name} ended with {one.returncode}" for name, one in self.processes.items() if one.returncode is not None]


def _environment(cluster: Cluster, provider_url: str) -> dict[str, str]:
    target = {"name": "notes", "base_url": provider_url, "capability": "searchable", "look_up": "/notes/{key}"}
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("DEEDBOX_", "PG"))}
    return clean | {
        "AI_ACTIONS_ENABLED": "true",
        "DEEDBOX_DATABASE_URL": cluster.url("deedbox_app"),
        "DEEDBOX_TARGETS": json.dumps([target]),
        "DEEDBOX_EGRESS_ALLOW": provider_url.removeprefix("http://"),
        "DEEDBOX_LEASE_S": str(LEASE_S),
        "DEEDBOX_SEND_LEASE_S": str(SEND_LEASE_S),
        "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src"), *filter(None, [os.environ.get("PYTHONPATH")])]),
    }


async def _prepare(cluster: Cluster) -> tuple[str, str]:
    """Schema, a service's key, a person's password, and the switch on."""
    await migrate(cluster.url("deedbox_owner"))
    pool = make_pool(cluster.url("deedbox_app"), "failover", size=3)
    await pool.open(wait=True)
    try:
        ids = await IdSource.read(pool)
        key = await add_key(pool, ids, "default", "caller", ["operator"], "fail-over")
        password = secrets.token_urlsafe(16)
        await add_user(pool, ids, "default", "approver", ["manager"], password)
        async with transaction(pool) as connection:
            await switch.turn_root(connection, "acts", is_on=True, changed_by="approver", reason="the fail-over run")
    finally:
        await pool.close()
    return key, password


@asynccontextmanager
async def house(
    cluster: Cluster, provider_url: str, size: Size, machines: Mapping[str, Machine] | None = None
) -> AsyncGenerator[House]:
    """Processes on the cluster until the block ends; every API answers ready when it begins.

    `machines` says where each of `size.names()` runs; whoever is not named runs on this machine.
    """
    key, password = await _prepare(cluster)
    one = House([], key, password)
    environment = _environment(cluster, provider_url)
    try:
        for name, port in zip(size.names(), free_ports(len(size.names())), strict=True):
            machine = (machines or {}).get(name, Machine())
            part = name.rstrip("0123456789")
            listening = {"DEEDBOX_HOST": machine.address, "DEEDBOX_PORT": str(port)}
            if part == "api":
                one.urls.append(f"http://{machine.address}:{port}")
            command = machine.command(sys.executable, "-m", "deedbox.cli.main", part, APP)
            with (cluster.directory / f"{name}.log").open("ab") as out:
                one.processes[name] = await asyncio.create_subprocess_exec(
                    *command, env=environment | listening, cwd=ROOT, stdout=out, stderr=out
                )
        await asyncio.gather(*(until_ready(one, url, within=60) for url in one.urls))
        yield one
    finally:
        for process in one.processes.values():
            if process.returncode is None:
                process.kill()
            await process.wait()


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
