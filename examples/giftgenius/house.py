"""The processes of the example: the shop, and Deedbox with this example's actions, on ports and a state of their own."""

import asyncio
import json
import os
import secrets
import signal
import sys
from collections.abc import AsyncGenerator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Self

import httpx2

from examples.giftgenius.shop import TOKEN_VARIABLE

ROOT: Final = Path(__file__).resolve().parent.parent.parent
APP: Final = "examples.giftgenius.app:app"
OVER: Final = ("completed", "failed_terminal", "failed_retryable", "canceled")


class HouseError(RuntimeError):
    """Something that did not come about in time, with what was seen last."""


@dataclass
class House:
    """Everything that runs, and how to talk to it as the agent's operator."""

    state: Path
    environment: dict[str, str]
    http: httpx2.AsyncClient
    url: str = ""
    shop_url: str = ""
    key: str = ""
    processes: dict[str, asyncio.subprocess.Process] = field(default_factory=dict[str, asyncio.subprocess.Process])

    @classmethod
    @asynccontextmanager
    async def open(
        cls, state: Path, settings: Mapping[str, str] | None = None, *, pause_ms: float = 150
    ) -> AsyncGenerator[Self]:
        """Start everything, with these settings beside its own; end everything."""
        async with AsyncExitStack() as stack:
            http = await stack.enter_async_context(httpx2.AsyncClient(timeout=40, trust_env=False))
            house = cls(state, dict(os.environ), http)
            stack.push_async_callback(house.close)
            await house.start(pause_ms, settings or {})
            yield house

    async def start(self, pause_ms: float, settings: Mapping[str, str]) -> None:
        """The shop first, then the database, the agent's key, and Deedbox's processes."""
        (self.state / "logs").mkdir(parents=True, exist_ok=True)
        token, port_file = secrets.token_hex(16), self.state / "shop.port"
        port_file.unlink(missing_ok=True)
        self.environment |= {
            "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src")]),
            "PYTHONUNBUFFERED": "1",
            TOKEN_VARIABLE: token,
        }
        await self.spawn("shop", "examples.giftgenius.shop", "--port-file", str(port_file), "--pause-ms", str(pause_ms))
        shop = await _port_in(port_file)
        self.shop_url = f"http://127.0.0.1:{shop}"
        port = await _free_port()
        self.url = f"http://127.0.0.1:{port}"
        self.environment |= {
            "DEEDBOX_STATE": str(self.state / "deedbox"),
            "DEEDBOX_HOST": "127.0.0.1",
            "DEEDBOX_PORT": str(port),
            "DEEDBOX_PUBLIC_URL": self.url,
            "DEEDBOX_LEASE_S": "3",
            "DEEDBOX_TARGETS": json.dumps([{"name": "shop", "base_url": self.shop_url, "bearer": token}]),
            "DEEDBOX_EGRESS_ALLOW": f"127.0.0.1:{shop}",
            **settings,
        }
        await self.cli("migrate")
        lines = (await self.cli("keys", "add", "gift-agent", "--role", "operator", "--label", "giftgenius")).split()
        self.key = next(word for word in lines if word.startswith("dbx_"))
        await self.spawn("api", "deedbox.cli.main", "api", APP)
        await self.spawn("worker", "deedbox.cli.main", "worker", APP)
        await self._ready()

    async def spawn(self, name: str, module: str, *arguments: str) -> None:
        """Start one Python process; its output goes to its log."""
        with (self.state / "logs" / f"{name}.log").open("ab") as log:
            self.processes[name] = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                module,
                *arguments,
                env=self.environment,
                cwd=ROOT,
                stdout=log,
                stderr=log,
                stdin=asyncio.subprocess.DEVNULL,
            )

    async def cli(self, *arguments: str) -> str:
        """Run one command to its end and return what it printed. Raises HouseError when it failed."""
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "deedbox.cli.main",
            *arguments,
            env=self.environment,
            cwd=ROOT,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        out, err = await asyncio.wait_for(process.communicate(), 90)
        if process.returncode:
            raise HouseError(f"deedbox {' '.join(arguments[:2])}: {err.decode()[-600:]}")
        return out.decode()

    async def close(self) -> None:
        """End every process, the neighbours last."""
        for process in reversed(self.processes.values()):
            if process.returncode is None:
                process.terminate()
        for process in self.processes.values():
            try:
                await asyncio.wait_for(process.wait(), 20)
            except TimeoutError:
                process.kill()
                await process.wait()

    async def _ready(self) -> None:
        async with asyncio.timeout(60):
            while True:
                try:
                    if (await self.http.get(f"{self.url}/readyz")).status_code == 200:
                        return
                except httpx2.HTTPError:
                    pass
                await asyncio.sleep(0.1)

    async def call(self, method: str, path: str, *, key: str | None = None, **more: Any) -> httpx2.Response:
        """One call of the API as the agent."""
        headers = {"Authorization": f"Bearer {self.key}"} | ({"Idempotency-Key": key} if key else {})
        return await self.http.request(method, self.url + path, headers=headers, **more)

    async def job(self, job_id: str, wait: int = 0) -> dict[str, Any]:
        """The job as the agent sees it."""
        answer = await self.call("GET", f"/api/jobs/{job_id}" + (f"?wait={wait}" if wait else ""))
        if answer.status_code != 200:
            raise HouseError(f"job {job_id}: {answer.status_code} {answer.text[:300]}")
        return answer.json()

    async def until_over(self, job_id: str, within: float = 120) -> dict[str, Any]:
        """Wait until the job is over."""
        seen: dict[str, Any] = {}
        try:
            async with asyncio.timeout(within):
                while (seen := await self.job(job_id, 10))["state"] not in OVER:
                    pass
        except TimeoutError:
            raise HouseError(f"job {job_id} is {seen.get('state')}: {seen.get('last_error')}") from None
        return seen

    async def events(self, job_id: str) -> list[dict[str, Any]]:
        """Everything that happened to the job so far."""
        found: list[dict[str, Any]] = []
        while True:
            after = found[-1]["seq"] if found else 0
            headers = {"Authorization": f"Bearer {self.key}", "Accept": "application/json"}
            answer = await self.http.get(f"{self.url}/api/jobs/{job_id}/events?after={after}", headers=headers)
            answer.raise_for_status()
            page = answer.json()["events"]
            if not page:
                return found
            found += page

    async def shop(self, mode: str | None = None) -> dict[str, Any]:
        """What the shop has seen; with a `mode`, it behaves so from now on."""
        answer = await (
            self.http.get(f"{self.shop_url}/seen")
            if mode is None
            else self.http.post(f"{self.shop_url}/faults", json={"mode": mode})
        )
        answer.raise_for_status()
        return answer.json()

    async def until_shop(self, name: str, least: int, within: float = 60) -> dict[str, Any]:
        """Wait until one of the shop's counts is at least this."""
        seen: dict[str, Any] = {}
        try:
            async with asyncio.timeout(within):
                while (seen := await self.shop())[name] < least:  # noqa: ASYNC110 -- another process counts
                    await asyncio.sleep(0.05)
        except TimeoutError:
            raise HouseError(f"the shop's {name} did not come to {least}: {seen}") from None
        return seen

    async def replace_worker_by_kill(self) -> int:
        """SIGKILL the worker and start another; returns the killed process's id."""
        old = self.processes["worker"]
        os.kill(old.pid, signal.SIGKILL)
        await old.wait()
        await self.spawn("worker", "deedbox.cli.main", "worker", APP)
        return old.pid


async def _free_port() -> int:
    server = await asyncio.start_server(lambda _reader, _writer: None, "127.0.0.1", 0)
    port = int(server.sockets[0].getsockname()[1])
    server.close()
    await server.wait_closed()
    return port


async def _port_in(path: Path) -> int:
    async with asyncio.timeout(30):
        while not await asyncio.to_thread(path.exists):  # noqa: ASYNC110 -- another process writes it, whole or not at all
            await asyncio.sleep(0.05)
    return int(await asyncio.to_thread(path.read_text))
