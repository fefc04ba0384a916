"""The processes of the example: the shop, and Deedbox with this example's actions, on ports and a state of their own."""

import asyncio
import json
import os
import secrets
from collections.abc import AsyncGenerator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

import httpx2

from examples.giftgenius.shop import TOKEN_VARIABLE
from examples.processes import ExampleError, Processes, free_port, port_in, sources

APP: Final = "examples.giftgenius.app:app"
OVER: Final = ("completed", "failed_terminal", "failed_retryable", "canceled")


@dataclass
class House(Processes):
    """Everything that runs, and how to talk to it as the agent's operator."""

    url: str = ""
    shop_url: str = ""
    key: str = ""

    @classmethod
    @asynccontextmanager
    async def open(
        cls, state: Path, settings: Mapping[str, str] | None = None, *, pause_ms: float = 150
    ) -> AsyncGenerator[Self]:
        """Start everything, with these settings beside its own; end everything."""
        async with AsyncExitStack() as stack:
            http = await stack.enter_async_context(httpx2.AsyncClient(timeout=40, trust_env=False))
            house = cls(state, dict(os.environ), http, APP)
            stack.push_async_callback(house.close)
            await house.start(pause_ms, settings or {})
            yield house

    async def start(self, pause_ms: float, settings: Mapping[str, str]) -> None:
        """The shop first, then the database, the agent's key, and Deedbox's processes."""
        token, port_file = secrets.token_hex(16), self.state / "shop.port"
        port_file.unlink(missing_ok=True)
        self.environment |= {**sources(), TOKEN_VARIABLE: token}
        await self.spawn("shop", "examples.giftgenius.shop", "--port-file", str(port_file), "--pause-ms", str(pause_ms))
        shop = await port_in(port_file)
        self.shop_url = f"http://127.0.0.1:{shop}"
        port = await free_port()
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
        self.key = await self.add_key("gift-agent", "operator", "giftgenius")
        await self.serve("api")
        await self.serve("worker")
        await self.ready(self.url)

    async def call(self, method: str, path: str, *, key: str | None = None, **more: Any) -> httpx2.Response:
        """One call of the API as the agent."""
        headers = {"Authorization": f"Bearer {self.key}"} | ({"Idempotency-Key": key} if key else {})
        return await self.http.request(method, self.url + path, headers=headers, **more)

    async def job(self, job_id: str, wait: int = 0) -> dict[str, Any]:
        """The job as the agent sees it."""
        answer = await self.call("GET", f"/api/jobs/{job_id}" + (f"?wait={wait}" if wait else ""))
        if answer.status_code != 200:
            raise ExampleError(f"job {job_id}: {answer.status_code} {answer.text[:300]}")
        return answer.json()

    async def until_over(self, job_id: str, within: float = 120) -> dict[str, Any]:
        """Wait until the job is over."""
        seen: dict[str, Any] = {}
        try:
            async with asyncio.timeout(within):
                while (seen := await self.job(job_id, 10))["state"] not in OVER:
                    pass
        except TimeoutError:
            raise ExampleError(f"job {job_id} is {seen.get('state')}: {seen.get('last_error')}") from None
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
            raise ExampleError(f"the shop's {name} did not come to {least}: {seen}") from None
        return seen
