"""Old code on the new schema: the package as git has it from before the newest migration, running while the schema moves on.

A build refuses to start on a schema that is newer than its own; what counts is one that runs already, while processes are
replaced one by one. Where the checkout's history does not reach back so far, the test skips and says so; `test_migrations.py`
then still runs the statements of the first version.
"""

import asyncio
import io
import json
import os
import re
import secrets
import subprocess
import sys
import tarfile
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import psycopg
import pytest
from psycopg import conninfo, sql

from deedbox.store.migrate import migrate, newest
from tests.database import server, through_a_pooler
from tests.guarantees import proves
from tests.servers.commands import address_in, introduced
from tests.servers.http_provider import HttpProvider

pytestmark = pytest.mark.anyio
ROOT = Path(__file__).resolve().parent.parent
PLACE = "src/deedbox/store/migrations"
PASSWORD = "ein langes Paßwort"
DEADLINE_S = 90

APP = """
from pydantic import BaseModel
from deedbox import App, Context, Http, allow, hold

app = App(connectors=[Http()])

class Thing(BaseModel):
    number: int

@app.action(roles=["operator"], policy=allow())
async def do_thing(ctx: Context, thing: Thing) -> Thing:
    number = await ctx.step("read", lambda: thing.number)
    await ctx.progress(1, 2, "half of it")
    return Thing(number=number)

@app.action(roles=["operator"], approvers=["manager"], policy=hold(expires="2h"))
async def post_thing(ctx: Context, thing: Thing) -> Thing:
    ctx.effect("http", target="notes", slot="note", payload={"path": "/notes", "body": {"number": thing.number}})
    return thing
"""


def git(*arguments: str) -> bytes:
    """What git says. Skips where there is no git, or no history."""
    try:
        return subprocess.run(["git", "-C", str(ROOT), *arguments], check=True, capture_output=True).stdout
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"git cannot tell what was before: {error}")


def version_at(commit: str) -> int:
    """The schema version that a commit's build was made for; 0 where it has none."""
    names = git("ls-tree", "--name-only", commit, f"{PLACE}/").decode().splitlines()
    found = [re.search(r"/(\d{4})_[a-z_]+\.sql$", name) for name in names]
    return max((int(one[1]) for one in found if one), default=0)


def older() -> tuple[str, int]:
    """The last commit from before the newest migration, and its version. Skips where history does not hold one."""
    # Along the line of what was released: a branch may have had a migration of its own in another form.
    touched = git("log", "--first-parent", "--format=%H", "-50", "HEAD", "--", PLACE).decode().split()
    for commit in ("HEAD", *(f"{one}^" for one in touched)):
        if (
            commit.endswith("^")
            and not subprocess.run(
                ["git", "-C", str(ROOT), "rev-parse", "-q", "--verify", commit], check=False, capture_output=True
            ).stdout
        ):
            continue
        if 0 < (version := version_at(commit)) < newest():
            return commit, version
    pytest.skip(f"history does not reach back to a build from before schema version {newest()}")


@dataclass(frozen=True)
class Build:
    """An older build in a directory of its own, on a database of its own that only it has migrated."""

    version: int
    directory: Path
    owner_url: str
    environment: dict[str, str]

    async def run(self, *arguments: str, stdin: str = "") -> tuple[int, str]:
        """Run one of its commands to the end; its exit code and all that it said."""
        process = await self.start(*arguments)
        out, _ = await process.communicate(stdin.encode())
        return process.returncode or 0, out.decode()

    async def start(self, *arguments: str) -> asyncio.subprocess.Process:
        """Start one of its commands."""
        return await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "deedbox.cli.main", *arguments),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            cwd=self.directory,
            env=self.environment,
        )


@asynccontextmanager
async def older_build(directory: Path, provider: HttpProvider) -> AsyncGenerator[Build]:
    """The older build with a key, a person and the switch on."""
    commit, version = older()
    with tarfile.open(fileobj=io.BytesIO(git("archive", commit, "src/deedbox"))) as archive:
        archive.extractall(directory, filter="data")
    (directory / "app.py").write_text(APP)
    where, name = server(), f"t_{secrets.token_hex(8)}"
    target = {"name": "notes", "base_url": provider.url, "capability": "searchable", "look_up": "/notes/{key}"}
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("DEEDBOX_", "PG"))}
    environment = kept | {
        "AI_ACTIONS_ENABLED": "true",
        "DEEDBOX_DATABASE_URL": conninfo.make_conninfo(where.app_url, dbname=name),
        "DEEDBOX_MIGRATE_URL": conninfo.make_conninfo(where.owner_url, dbname=name),
        "DEEDBOX_PORT": "0",
        "DEEDBOX_LOG_LEVEL": "warning",
        "DEEDBOX_TARGETS": json.dumps([target]),
        "DEEDBOX_EGRESS_ALLOW": provider.url.removeprefix("http://"),
        "PYTHONPATH": str(directory / "src"),
        "PYTHONUNBUFFERED": "1",
    }
    admin_url = conninfo.make_conninfo(where.owner_url, dbname="postgres")
    async with await psycopg.AsyncConnection.connect(admin_url, autocommit=True) as admin:
        await admin.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
        try:
            yield Build(version, directory, environment["DEEDBOX_MIGRATE_URL"], environment)
        finally:
            await admin.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))


@asynccontextmanager
async def serving(build: Build) -> AsyncGenerator[tuple[asyncio.subprocess.Process, str]]:
    """Its server with everything in it, and where it listens."""
    process = await build.start("serve", "app.py")
    async with introduced(process, DEADLINE_S) as said:
        yield process, address_in(said)


async def one_round(client: httpx2.AsyncClient, person: dict[str, str], number: int) -> None:
    """A job that just runs, and one whose effect is decided, sent and has its receipt; each delivered twice."""
    for action in ("do_thing", "post_thing"):
        where = f"/api/actions/{action}/jobs"
        headers = {"Idempotency-Key": f"{action}-{number}", "Prefer": "wait=20" if action == "do_thing" else "respond-async"}
        made = await client.post(where, json={"number": number}, headers=headers)
        assert made.status_code == (200 if action == "do_thing" else 202), made.text
        job = f"/api/jobs/{made.json()['job_id']}"
        if action == "post_thing":
            await until(client, job, "awaiting_human", person)
            (waiting,) = (await client.get("/api/approvals", headers=person)).json()["approvals"]
            card = (await client.get(f"/api/approvals/{waiting['approval_id']}", headers=person)).json()
            decision = {"decision": "approve", "digest": card["digest"]}
            decided = await client.post(f"/api/approvals/{waiting['approval_id']}/decision", json=decision, headers=person)
            assert decided.status_code == 200, decided.text
        shown = await until(client, job, "completed", person)
        assert shown["result"] == {"number": number}
        again = await client.post(where, json={"number": number}, headers=headers | {"Prefer": "respond-async"})
        assert again.headers["idempotent-replayed"] == "true", again.text
        events = await client.get(f"{job}/events?after=0", headers=person | {"Accept": "application/json"})
        assert events.json()["events"][-1]["type"] == "job.completed"
    listed = (await client.get("/api/jobs", headers=person)).json()["jobs"]
    assert len(listed) == 2 * number
    assert (await client.get("/readyz")).status_code == 200


async def until(client: httpx2.AsyncClient, job: str, state: str, person: dict[str, str]) -> dict[str, Any]:
    """The job, once it is in that state."""
    shown: dict[str, Any] = {}
    async with asyncio.timeout(DEADLINE_S):
        while shown.get("state") != state:
            shown = (await client.get(f"{job}?wait=2", headers=person)).json()
            assert shown["state"] not in {"failed_terminal", "failed_retryable"}, shown
    return shown


@proves("G-MIGRATE-UNDER-LOAD")
async def test_a_running_older_build_goes_on_while_the_schema_becomes_the_newest(tmp_path: Path) -> None:
    if through_a_pooler():
        pytest.skip("an older build may not know how to go past a pooler")
    provider = HttpProvider()
    async with provider.running(), older_build(tmp_path, provider) as build:
        async with serving(build) as (process, url):
            code, key = await build.run("keys", "add", "caller", "--role", "operator")
            assert code == 0, key
            assert (await build.run("users", "add", "Ada", "--role", "manager", stdin=f"{PASSWORD}\n"))[0] == 0
            on = ("switch", "on", "--as", "Ada", "--reason", "ready", "--owner", "Ada")
            assert (await build.run(*on, stdin=f"{PASSWORD}\n"))[0] == 0
            caller = {"Authorization": f"Bearer {key.split()[-1]}"}
            async with httpx2.AsyncClient(base_url=url, headers=caller, trust_env=False, timeout=30) as client:
                opened = await client.post("/api/login", json={"name": "Ada", "password": PASSWORD})
                person = {"Authorization": f"Bearer {opened.json()['token']}"}
                await one_round(client, person, 1)
                done = await migrate(build.owner_url)
                assert len(done) > 0
                await one_round(client, person, 2)
                # Plans are made anew, and statements prepared on this side of the migration as well.
                for number in range(3, 9):
                    await one_round(client, person, number)
            process.terminate()
            assert await process.wait() == 0
        assert len(provider.performed) == 8
        code, said = await build.run("worker", "app.py")
        assert code != 0
        assert f"newer than this build ({build.version})" in said
