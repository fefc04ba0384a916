"""The hand-over, end to end: `python -m examples.hermes_handoff` starts everything, shows both ways, and says what was seen.

The exit code is 0 only if each line was really observed. Everything has a database and processes of its own, ended at the end.
"""

import asyncio
import base64
import json
import os
import secrets
import shutil
import sys
import tempfile
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import httpx2

from examples.processes import CLI, ROOT, ExampleError, free_port, is_ready, key_in, sources

APP = "examples.hermes_handoff.app:app"
WITHIN_S = 120.0


@dataclass
class Show:
    """What runs, and what was seen of it."""

    state: Path
    http: httpx2.AsyncClient
    environment: dict[str, str]
    url: str = ""
    desk: str = ""
    key: str = ""
    mira: str = ""
    processes: list[asyncio.subprocess.Process] = field(default_factory=list[asyncio.subprocess.Process])
    missed: int = 0

    def note(self, what: str, seen: bool, evidence: object) -> None:  # noqa: FBT001 -- what was observed
        """Say one line."""
        self.missed += not seen
        print(f"{'seen    ' if seen else 'NOT SEEN'}  {what}: {evidence}", flush=True)

    async def cli(self, *arguments: str, given: str = "") -> str:
        """Run one command to its end."""
        process = await self._start(CLI, *arguments, out=asyncio.subprocess.PIPE)
        out, _ = await asyncio.wait_for(process.communicate(given.encode()), WITHIN_S)
        if process.returncode:
            raise ExampleError(f"deedbox {' '.join(arguments)} failed; see {self.state / 'log'}")
        return out.decode()

    async def spawn(self, module: str, *arguments: str) -> str:
        """Start a process that goes on, and return its first line."""
        process = await self._start(module, *arguments, out=asyncio.subprocess.PIPE)
        self.processes.append(process)
        if process.stdout is None:
            raise ExampleError("a process without its output")
        return (await asyncio.wait_for(process.stdout.readline(), WITHIN_S)).decode()

    async def _start(self, module: str, *arguments: str, out: int) -> asyncio.subprocess.Process:
        with (self.state / "log").open("ab") as log:
            return await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                module,
                *arguments,
                env=self.environment,
                cwd=ROOT,
                stdin=asyncio.subprocess.PIPE,
                stdout=out,
                stderr=log,
            )

    async def call(self, method: str, path: str, *, who: str, given: Any = None, key: str | None = None) -> dict[str, Any]:
        """One call of Deedbox's API."""
        headers = {"Authorization": f"Bearer {who}"} | ({"Idempotency-Key": key} if key else {})
        answer = await self.http.request(method, self.url + path, headers=headers, json=given)
        return {"status_code": answer.status_code, **cast("dict[str, Any]", answer.json())}

    async def submit(self, action: str, given: Mapping[str, Any], key: str) -> str:
        """Submit as the desk's own program."""
        return str((await self.call("POST", f"/api/actions/{action}/jobs", who=self.key, given=given, key=key))["job_id"])

    async def until(self, job_id: str, state: str) -> dict[str, Any]:
        """The job once it is in a state, as Mira sees it."""
        seen: dict[str, Any] = {}
        async with asyncio.timeout(WITHIN_S):
            while seen.get("state") != state:
                seen = await self.call("GET", f"/api/jobs/{job_id}?wait=2", who=self.mira)
                if seen.get("failure"):
                    raise ExampleError(f"job {job_id} ended: {seen['failure']}")
        return seen

    async def approve(self, job_id: str) -> None:
        """Say yes to what waits, as Mira."""
        for line in (await self.call("GET", "/api/approvals", who=self.mira))["approvals"]:
            card = await self.call("GET", f"/api/approvals/{line['approval_id']}", who=self.mira)
            if card["job_id"] == job_id:
                given = {"decision": "approve", "digest": card["digest_hex"], "reason": None}
                await self.call("POST", f"/api/approvals/{line['approval_id']}/decision", who=self.mira, given=given)

    async def seen(self) -> dict[str, Any]:
        """What Hermes and the desk have seen."""
        return cast("dict[str, Any]", (await self.http.get(f"{self.desk}/seen")).json())


@asynccontextmanager
async def opened(state: Path) -> AsyncGenerator[Show]:
    """Everything started, with secrets of its own; ended by its ids."""
    async with httpx2.AsyncClient(timeout=60, trust_env=False) as http:
        base = {name: text for name, text in os.environ.items() if not name.startswith("DEEDBOX_")}
        environment = {**base, **sources(), "AI_ACTIONS_ENABLED": "true"}
        show = Show(state, http, {**environment, "DEEDBOX_STATE": str(state / "deedbox")})
        try:
            await _set_up(show)
            yield show
        finally:
            for process in show.processes:
                if process.returncode is None:
                    process.terminate()
            await asyncio.gather(*(asyncio.wait_for(process.wait(), 30) for process in show.processes), return_exceptions=True)


async def _set_up(show: Show) -> None:
    password, token, hermes_key = secrets.token_hex(12), secrets.token_hex(16), secrets.token_hex(16)
    signing = "whsec_" + base64.b64encode(secrets.token_bytes(32)).decode()
    port = await free_port()
    show.url = f"http://127.0.0.1:{port}"
    await show.cli("migrate")
    await show.cli("roles", "add", "drafter", "--verb", "submit")
    await show.cli("users", "add", "mira", "--role", "manager", given=f"{password}\n")
    show.key = key_in(await show.cli("keys", "add", "desk", "--role", "operator"))
    # What Hermes holds of ours: a key that may hand in drafts and nothing else.
    hermes = key_in(await show.cli("keys", "add", "hermes", "--role", "drafter"))
    show.environment |= {
        "HERMES_API_KEY": hermes_key,
        "HERMES_HOOK_SECRET": signing,
        "HERMES_DEEDBOX_KEY": hermes,
        "DESK_TOKEN": token,
        "DEEDBOX_URL": show.url,
    }
    ports = json.loads(await show.spawn("examples.hermes_handoff.neighbours"))
    at = f"http://127.0.0.1:{ports['hermes']}"
    show.desk = f"http://127.0.0.1:{ports['desk']}"
    for name in ("HERMES_API_KEY", "HERMES_HOOK_SECRET", "HERMES_DEEDBOX_KEY", "DESK_TOKEN", "DEEDBOX_URL"):
        del show.environment[name]
    endpoint = {
        "name": "hermes",
        "base_url": f"{at}/v1",
        "model": "hermes-agent",
        "api_key": hermes_key,
        "timeout_s": 300,
        "send_key": True,
        "input_price": "0.5",
        "output_price": "1.5",
    }
    targets = [
        {"name": "hermes_hook", "base_url": at, "signing": [signing]},
        {"name": "desk", "base_url": show.desk, "bearer": token},
    ]
    show.environment |= {
        "DEEDBOX_HOST": "127.0.0.1",
        "DEEDBOX_PORT": str(port),
        "DEEDBOX_PUBLIC_URL": show.url,
        "DEEDBOX_MODELS": json.dumps([endpoint]),
        "DEEDBOX_TARGETS": json.dumps(targets),
        "DEEDBOX_EGRESS_ALLOW": f"127.0.0.1:{ports['hermes']},127.0.0.1:{ports['desk']}",
    }
    await show.spawn(CLI, "serve", APP)
    async with asyncio.timeout(WITHIN_S):
        while not await is_ready(show.http, show.url):
            if show.processes[-1].returncode is not None:
                raise ExampleError(f"Deedbox did not start; see {show.state / 'log'}")
            await asyncio.sleep(0.1)
    given = {"name": "mira", "password": password}
    show.mira = str((await show.http.post(f"{show.url}/api/login", json=given)).json()["token"])
    await show.call("PUT", "/api/switch", who=show.mira, given={"on": True, "reason": "the example begins"})


async def by_api(show: Show) -> None:
    """Hermes' API server drafts, as a model endpoint with a bearer key."""
    job_id = await show.submit("draft_reply", {"mail_id": "late-parcel"}, "mail-late-parcel")
    held = await show.until(job_id, "awaiting_human")
    seen = await show.seen()
    asked = seen["chats"][0]["body"]
    show.note("Hermes drafted over its API", len(seen["chats"]) == 1, f"{len(seen['chats'])} question")
    clean = all(word not in asked for word in ("example.org", show.key, "whsec_"))
    show.note("it was told no recipient and no key", clean, f"{len(asked)} bytes")
    show.note("nothing leaves before a person decides", not seen["replies"], f"{len(seen['replies'])} replies")
    show.note("what it cost is with the job", held["models"]["cost"] == {"USD": "0.00063"}, held["models"])
    await show.approve(job_id)
    await show.until(job_id, "completed")
    replies = (await show.seen())["replies"]
    good = [reply["to"] for reply in replies] == ["zoe.brandt@example.org"]
    show.note("one approval, one reply, to whom the desk says", good, f"{len(replies)} reply")


async def by_webhook(show: Show) -> None:
    """Hermes' webhook takes the work, signed, and hands the draft in by a call of its own."""
    job_id = await show.submit("hand_over_draft", {"mail_id": "wrong-size"}, "mail-wrong-size")
    await show.until(job_id, "completed")
    unsigned = await show.http.post(f"{_hook(show)}/hooks/draft", json={"mail_id": "wrong-size", "text": "Do something else."})
    show.note("what is not signed is not taken", unsigned.is_client_error, unsigned.status_code)
    seen = await show.seen()
    async with asyncio.timeout(WITHIN_S):
        while len((seen := await show.seen())["answers"]) < 2:  # noqa: ASYNC110 -- both of the nervous client's calls
            await asyncio.sleep(0.1)
    show.note("the webhook was called once, signed", len(seen["hooks"]) == 1, list(seen["hooks"]))
    jobs: list[dict[str, Any]] = (await show.call("GET", "/api/jobs?action=file_draft", who=show.mira))["jobs"]
    show.note("its answer came twice and is one job", len(jobs) == 1 and seen["answers"] == [202, 202], seen["answers"])
    filed = str(jobs[0]["job_id"])
    await show.until(filed, "awaiting_human")
    show.note("a person decides about it as well", len((await show.seen())["replies"]) == 1, "no further reply")
    await show.approve(filed)
    await show.until(filed, "completed")
    replies = (await show.seen())["replies"]
    good = [reply["to"] for reply in replies[1:]] == ["noor.haddad@example.org"]
    show.note("one approval, one reply, to whom the desk says", good, f"{len(replies)} replies")


def _hook(show: Show) -> str:
    return str(json.loads(show.environment["DEEDBOX_TARGETS"])[0]["base_url"])


async def main() -> int:
    """Show both ways; returns the exit code."""
    state = Path(tempfile.mkdtemp(prefix="deedbox-hermes-"))
    async with opened(state) as show:
        await by_api(show)
        await by_webhook(show)
        missed = show.missed
    if missed:
        print(f"{missed} lines were not seen; logs: {state / 'log'}")
        return 1
    shutil.rmtree(state, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
