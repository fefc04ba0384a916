"""The three rules for running again, each at every door: a repeated delivery, the API, the command line, and the card."""

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

import psycopg
import pytest

from deedbox.model.again import RULES, instead
from deedbox.model.lifecycle import JOB
from tests.database import TestDatabase
from tests.guarantees import proves
from tests.servers.api import PERSON_TOKEN, Api, api, problem_of
from tests.servers.commands import PASSWORD, Cli, people

pytestmark = pytest.mark.anyio

ENDED = tuple(JOB.ended)
APP = """
from pydantic import BaseModel, Field
from deedbox import App, Context, allow

app = App()

class Note(BaseModel):
    text: str = Field(max_length=1000)

class Told(BaseModel):
    text: str

@app.action(roles=["operator"], policy=allow())
async def note_thing(ctx: Context, note: Note) -> Told:
    return Told(text=note.text)
"""


@dataclass(frozen=True)
class Doors:
    """A served installation with a job of a program, and the doors through which it is asked to run again."""

    site: Api
    cli: Cli
    job_id: UUID
    folder: Path

    async def state(self) -> tuple[str, int, int]:
        """The state, the round, and how many jobs there are."""
        row = await self.site.database.rows(
            "SELECT coalesce(q.state, r.state), coalesce(q.round, r.round), (SELECT count(*) FROM deedbox.job)"
            " FROM deedbox.job j LEFT JOIN deedbox.queue q USING (job_id) LEFT JOIN deedbox.result r USING (job_id)"
            " WHERE j.job_id = %s",
            self.job_id,
        )
        return str(row[0][0]), int(str(row[0][1])), int(str(row[0][2]))

    async def take_up(self, door: str) -> tuple[bool, str]:
        """Ask for a new round; whether it began, and what was said."""
        if door == "api":
            async with self.site.client(PERSON_TOKEN) as client:
                answer = await client.post(f"/api/jobs/{self.job_id}/retry", json={"reason": "Once more."})
            return answer.status_code == 202, answer.text if answer.status_code == 202 else _refused(answer.text)
        if door == "cli":
            ended = await self.cli("jobs", "take-up", str(self.job_id), "--as", "ada", "--reason", "Again.", stdin=PASSWORD)
            return ended.code == 0, ended.out + ended.err
        async with self.site.client() as client:
            answer = await client.post("/api/actions/note_thing/jobs", json={"text": "a"}, headers={"Idempotency-Key": "k"})
        assert answer.status_code == 202
        assert answer.headers["idempotent-replayed"] == "true"
        return bool(answer.json().get("taken_up")), answer.json()["status"]

    async def replace(self, door: str, key: str) -> tuple[bool, str]:
        """Ask for a correction; whether it was accepted, and what was said."""
        if door == "api":
            async with self.site.client() as client:
                body = {"input": {"text": "b"}, "key": key, "reason": "A typo."}
                answer = await client.post(f"/api/jobs/{self.job_id}/replacement", json=body)
            return answer.status_code == 202, answer.text if answer.status_code == 202 else _refused(answer.text)
        app, given = self.folder / "again_app.py", self.folder / "input.json"
        app.write_text(APP, encoding="utf-8")
        given.write_text(json.dumps({"text": "b"}), encoding="utf-8")
        ended = await self.cli(
            *("jobs", "replace", str(self.job_id), str(app), str(given), "--key", key, "--as", "ada", "--reason", "A typo."),
            stdin=PASSWORD,
        )
        return ended.code == 0, ended.out + ended.err


def _refused(text: str) -> str:
    return str(json.loads(text)["detail"]) + str(json.loads(text)["errors"])


async def force(database: TestDatabase, job_id: UUID, state: str) -> None:
    """Put a job into a state, past the guards: what matters here is what each door makes of it."""
    async with await psycopg.AsyncConnection.connect(database.owner_url, autocommit=True) as connection:
        await connection.execute("SET session_replication_role = replica")
        if state in ENDED:
            code = None if state == "completed" else "done_with"
            await connection.execute(
                "INSERT INTO deedbox.result (job_id, state, code, attempt, attempts_allowed, round, last_seq, ended_at)"
                " VALUES (%s, %s, %s, 1, 5, 1, 1, deedbox.clock())",
                [job_id, state, code],
            )
            await connection.execute("DELETE FROM deedbox.queue WHERE job_id = %s", [job_id])
            return
        await connection.execute(
            "UPDATE deedbox.queue SET state = %(state)s, attempt_id = l.a, fence = l.f, worker = l.w, started_at = l.t,"
            " lease_until = l.t, lease_cap = l.t FROM (SELECT) AS one"
            " LEFT JOIN (SELECT gen_random_uuid() AS a, 1 AS f, 'w' AS w, now() AS t) AS l ON %(state)s = 'running'"
            " WHERE job_id = %(job_id)s",
            {"state": state, "job_id": job_id},
        )


@pytest.fixture
async def doors(database: TestDatabase, tmp_path: Path) -> AsyncIterator[Doors]:
    async with api(database) as site:
        await people(database.url, ada="manager operator")
        async with site.client() as client:
            made = await client.post("/api/actions/note_thing/jobs", json={"text": "a"}, headers={"Idempotency-Key": "k"})
        yield Doors(site, Cli(database.url, tmp_path), UUID(made.json()["job_id"]), tmp_path)


@proves("G-AGAIN", "G-TAKE-UP")
@pytest.mark.parametrize("door", ["redelivery", "api", "cli"])
async def test_only_what_is_parked_is_taken_up_whatever_the_door(database: TestDatabase, doors: Doors, door: str):
    for state in ("queued", "running", "awaiting_human", "dispatching"):
        await force(database, doors.job_id, state)
        before = await doors.state()
        begun, said = await doors.take_up(door)
        assert (begun, await doors.state()) == (False, before)
        _says(door, said, state)
    await force(database, doors.job_id, "failed_retryable")
    if door == "redelivery":
        # A caller's own repeated delivery has to wait; an operator has not.
        assert await doors.take_up(door) == (False, "failed_retryable")
        await database.shift_clock(400)
    begun, said = await doors.take_up(door)
    assert begun, said
    assert (await doors.state())[:2] == ("queued", 2)
    rows = await database.rows("SELECT door, subject_id FROM deedbox.audit WHERE verb = 'take_up'")
    assert rows == [("http" if door == "redelivery" else door, str(doors.job_id))]


@proves("G-AGAIN")
@pytest.mark.parametrize("state", ENDED)
@pytest.mark.parametrize("door", ["redelivery", "api", "cli"])
async def test_what_has_ended_answers_with_its_state_for_ever(database: TestDatabase, doors: Doors, door: str, state: str):
    await force(database, doors.job_id, state)
    await database.shift_clock(100_000)
    before = await doors.state()
    begun, said = await doors.take_up(door)
    assert (begun, await doors.state()) == (False, before)
    _says(door, said, state)


@proves("G-AGAIN", "G-REPLACEMENT")
@pytest.mark.parametrize("door", ["api", "cli"])
async def test_a_correction_is_of_what_has_ended_and_has_a_key_of_its_own(database: TestDatabase, doors: Doors, door: str):
    for state in ("queued", "awaiting_human", "dispatching", "failed_retryable"):
        await force(database, doors.job_id, state)
        accepted, said = await doors.replace(door, "another")
        assert not accepted
        _says(door, said, state)
    await force(database, doors.job_id, "completed")
    for key in ("k", "k-2"):
        accepted, said = await doors.replace(door, key)
        assert not accepted
        assert "key" in said
    assert (await doors.state())[2] == 1
    accepted, _ = await doors.replace(door, "another")
    assert accepted
    assert await database.value("SELECT count(*) FROM deedbox.job WHERE replaces = %s", doors.job_id) == 1
    rows = await database.rows(
        "SELECT a.door, a.reason, a.subject_id, d.detail->>'job' FROM deedbox.audit a JOIN deedbox.audit_detail d USING (seq)"
        " WHERE verb = 'replace'"
    )
    new = await database.value("SELECT job_id::text FROM deedbox.job WHERE replaces = %s", doors.job_id)
    assert rows == [(door, "A typo.", str(doors.job_id), new)]


def _says(door: str, said: str, state: str) -> None:
    """A refusal names the state, what is possible instead, and the rules; a repeated delivery just has the state."""
    assert state in said
    if door != "redelivery":
        assert instead(state) in said
        assert all(rule in said for rule in RULES)


async def test_a_reason_with_a_secret_is_refused_for_the_chain_keeps_it_for_ever(doors: Doors):
    card = "4111 1111 " + "1111 1111"
    async with doors.site.client(PERSON_TOKEN) as client:
        answer = await client.post(f"/api/jobs/{doors.job_id}/close", json={"reason": f"Paid with {card}."})
    assert problem_of(answer) == (400, "secret_in_input", ["/reason"])
    assert card not in answer.text


def test_every_state_says_what_is_possible():
    assert all(instead(state) != instead("gone") for state in JOB.states)
