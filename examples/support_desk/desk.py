"""The desk's processes and its three people: who submits, who approves, and the neighbours outside."""

import asyncio
import json
import os
import secrets
import signal
from collections.abc import AsyncGenerator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self, cast

import httpx2

from examples.processes import ExampleError, Processes, free_port, port_in, sources

APP = "examples.support_desk.app:app"


@dataclass(frozen=True, slots=True)
class Reply:
    """An HTTP answer, its JSON read where there is some."""

    status: int
    headers: Mapping[str, str]
    text: str
    body: dict[str, Any]


@dataclass
class Desk(Processes):
    """Everything that runs, and how to talk to it."""

    port: int
    crm_url: str = ""
    crm_token: str = ""
    key: str = ""
    token: str = ""
    first_job: str = ""
    customer: str = "zoe.brandt@example.org"
    password: str = ""

    @property
    def url(self) -> str:
        """Where the desk's Deedbox listens."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def maildir(self) -> Path:
        """Where the mailbox keeps what it got."""
        return self.state / "mails"

    @property
    def drafter(self) -> str:
        """Who drafts: the configured model, or the rules that ship with the example."""
        model = self.environment.get("DEEDBOX_MODEL_NAME")
        return f"the model {model}" if model else "rules (no model endpoint is configured)"

    @classmethod
    @asynccontextmanager
    async def open(cls, state: Path) -> AsyncGenerator[Self]:
        """Start everything; end everything."""
        async with AsyncExitStack() as stack:
            http = await stack.enter_async_context(httpx2.AsyncClient(timeout=40, trust_env=False))
            desk = cls(state, dict(os.environ), http, APP, await free_port())
            stack.push_async_callback(desk.close)
            await desk.start()
            yield desk

    async def start(self) -> None:
        """Neighbours first, then the database, its people, and Deedbox's processes."""
        self.crm_token, self.password = secrets.token_hex(16), secrets.token_hex(12)
        self.environment |= {**sources(), "SUPPORT_DESK_CRM_TOKEN": self.crm_token}
        crm, mail = self.state / "crm.port", self.state / "mail.port"
        for leftover in (crm, mail):
            leftover.unlink(missing_ok=True)
        await self.spawn(
            "crm",
            "examples.support_desk.crm",
            "--port",
            "0",
            "--database",
            str(self.state / "crm.sqlite"),
            "--port-file",
            str(crm),
        )
        await self.spawn(
            "mailbox", "examples.support_desk.mailbox", "--port", "0", "--maildir", str(self.maildir), "--port-file", str(mail)
        )
        crm_port, mail_port = await port_in(crm), await port_in(mail)
        self.crm_url = f"http://127.0.0.1:{crm_port}"
        target = {
            "name": "crm",
            "base_url": self.crm_url,
            "bearer": self.crm_token,
            "capability": "searchable",
            "look_up": "/by-key/{key}",
        }
        smtp = {"host": "127.0.0.1", "port": mail_port, "sender": "desk@example.com", "security": "none"}
        self.environment |= {
            "DEEDBOX_STATE": str(self.state / "deedbox"),
            "DEEDBOX_HOST": "127.0.0.1",
            "DEEDBOX_PORT": str(self.port),
            "DEEDBOX_PUBLIC_URL": self.url,
            "DEEDBOX_LEASE_S": "3",
            "DEEDBOX_SEND_LEASE_S": "4",
            "DEEDBOX_TARGETS": json.dumps([target]),
            "DEEDBOX_SMTP": json.dumps(smtp),
            "DEEDBOX_EGRESS_ALLOW": f"127.0.0.1:{crm_port},127.0.0.1:{mail_port}",
        }
        await self.cli("migrate")
        await self.cli("users", "add", "mira", "--role", "manager", given=self.password)
        self.key = await self.add_key("desk-form", "operator", "demo")
        for role in ("api", "worker", "dispatch"):
            await self.serve(role)
        await self.ready(self.url)
        await self.log_in()
        await self.switch(on=True, reason="demo: the desk opens")

    async def log_in(self) -> None:
        """Log in over HTTP as the person who approves."""
        answer = await self._call(
            "POST", "/api/login", content=json.dumps({"name": "mira", "password": self.password}), who=None
        )
        self.token = answer.body["token"]

    async def _call(
        self, method: str, path: str, *, who: str | None, headers: Mapping[str, str] | None = None, **more: Any
    ) -> Reply:
        sent = {"Content-Type": "application/json"} if "content" in more else {}
        if who is not None:
            sent["Authorization"] = f"Bearer {who}"
        answer = await self.http.request(method, self.url + path, headers=sent | dict(headers or {}), **more)
        try:
            body = cast("dict[str, Any]", answer.json())
        except ValueError:
            body = {}
        return Reply(answer.status_code, dict(answer.headers), answer.text, body)

    async def submit_document(self, action: str, path: Path, media_type: str, key: str) -> Reply:
        """Submit a file as the form does."""
        files = {"file": (path.name, await asyncio.to_thread(path.read_bytes), media_type)}
        answer = await self._call(
            "POST", f"/api/actions/{action}/jobs", who=self.key, headers={"Idempotency-Key": key}, files=files
        )
        self.first_job = self.first_job or str(answer.body.get("job_id", ""))
        return answer

    async def submit_json(self, action: str, given: Mapping[str, Any], key: str) -> Reply:
        """Submit JSON as the form does."""
        return await self._call(
            "POST", f"/api/actions/{action}/jobs", who=self.key, headers={"Idempotency-Key": key}, content=json.dumps(given)
        )

    async def job(self, job_id: str, wait: int = 0) -> dict[str, Any]:
        """The job as its caller sees it."""
        answer = await self._call("GET", f"/api/jobs/{job_id}" + (f"?wait={wait}" if wait else ""), who=self.key)
        if answer.status != 200:
            raise ExampleError(f"job {job_id}: {answer.status} {answer.text[:300]}")
        return answer.body

    async def until(self, job_id: str, state: str, within: float = 30) -> dict[str, Any]:
        """Wait until the job is in a state."""
        seen: dict[str, Any] = {}
        try:
            async with asyncio.timeout(within):
                while True:
                    seen = await self.job(job_id)
                    if seen["state"] == state:
                        return seen
                    await asyncio.sleep(0.05)
        except TimeoutError:
            raise ExampleError(f"job {job_id} is {seen.get('state')}, not {state}: {seen.get('last_error')}") from None

    async def approval_of(self, job_id: str) -> dict[str, Any]:
        """The pending approval of a job, as Mira sees it."""
        listed = await self._call("GET", "/api/approvals", who=self.token)
        for line in listed.body["approvals"]:
            card = await self._call("GET", f"/api/approvals/{line['approval_id']}", who=self.token)
            if card.body["job_id"] == job_id:
                return card.body
        raise ExampleError(f"job {job_id} has no pending approval")

    async def decide(self, approval_id: str, digest: str, decision: str) -> Reply:
        """Decide as Mira."""
        given = json.dumps({"decision": decision, "digest": digest, "reason": None})
        return await self._call("POST", f"/api/approvals/{approval_id}/decision", who=self.token, content=given)

    async def get_page(self, path: str) -> Reply:
        """A page as someone without a session gets it."""
        return await self._call("GET", path, who=None)

    async def effect_of(self, job_id: str, state: str, within: float = 30) -> dict[str, Any]:
        """The job's effect once it is in a state."""
        seen: list[dict[str, Any]] = []
        try:
            async with asyncio.timeout(within):
                while True:
                    listed = await self._call("GET", f"/api/effects?state={state}", who=self.token)
                    seen = listed.body["effects"]
                    for effect in seen:
                        if effect["job_id"] == job_id:
                            return effect
                    await asyncio.sleep(0.1)
        except TimeoutError:
            raise ExampleError(f"no effect of job {job_id} became {state}; seen: {seen}") from None

    async def effect_verb(self, effect_id: str, verb: str) -> Reply:
        """One verb of the ledger, as Mira."""
        return await self._call("POST", f"/api/effects/{effect_id}/{verb}", who=self.token, content=json.dumps({}))

    async def switch(self, *, on: bool, reason: str) -> None:
        """Turn the database half of the switch, as Mira."""
        answer = await self._call("PUT", "/api/switch", who=self.token, content=json.dumps({"on": on, "reason": reason}))
        if answer.status != 200:
            raise ExampleError(f"switch: {answer.status} {answer.text[:300]}")

    async def switch_by_service(self) -> Reply:
        """Try to turn the switch on with a program's key."""
        return await self._call(
            "PUT", "/api/switch", who=self.key, content=json.dumps({"on": True, "reason": "I am a program"})
        )

    async def _crm(self, method: str, path: str, **more: Any) -> Any:
        answer = await self.http.request(
            method, self.crm_url + path, headers={"Authorization": f"Bearer {self.crm_token}"}, **more
        )
        answer.raise_for_status()
        return answer.json()

    async def notes(self) -> list[dict[str, Any]]:
        """What the CRM has as notes."""
        return _items(await self._crm("GET", "/notes"))

    async def tickets(self) -> list[dict[str, Any]]:
        """What the CRM has as tickets."""
        return _items(await self._crm("GET", "/tickets"))

    async def crm_fault(self, mode: str, times: int) -> None:
        """Tell the CRM to misbehave."""
        await self._crm("POST", "/faults", json={"mode": mode, "times": times})

    def how_to_play(self) -> str:
        """What a visitor needs."""
        return (
            f"   page       {self.url}/   log in as mira, password {self.password}\n"
            f"   API key    {self.key}   (role operator)\n"
            f"   submit     curl -F file=@examples/support_desk/inputs/wrong_invoice.pdf \\\n"
            f"                -H 'Authorization: Bearer {self.key}' -H 'Idempotency-Key: try-1' \\\n"
            f"                {self.url}/api/actions/draft_customer_reply/jobs\n"
            f"   mailbox    {self.maildir}\n   CRM        {self.crm_url}/notes (bearer {self.crm_token})\n"
            f"   logs       {self.logs}\n   Ctrl-C stops everything."
        )

    async def until_stopped(self) -> None:
        """Wait for Ctrl-C or for a process that ends."""
        stop = asyncio.Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, stop.set)
        ends = [asyncio.create_task(process.wait()) for process in self.processes.values()]
        await asyncio.wait([asyncio.create_task(stop.wait()), *ends], return_when=asyncio.FIRST_COMPLETED)


def _items(value: Any) -> list[dict[str, Any]]:
    parts: list[Any] = list(cast("dict[str, Any]", value).values()) if isinstance(value, dict) else [value]
    for part in parts:
        if isinstance(part, list):
            return cast("list[dict[str, Any]]", part)
    raise ExampleError(f"the CRM answered {value!r}")
