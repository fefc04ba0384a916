"""Deciding at the terminal beside the plain decision, which the table of doors proves: show, edit, hand on, several at once."""

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.database import TestDatabase
from tests.decisions import Desk, Held, decisions_on, make_app
from tests.servers.commands import PASSWORD, ROOT, Cli, Ended, people, refused

pytestmark = pytest.mark.anyio

APP = f"""
import sys
sys.path.insert(0, {str(ROOT)!r})
from tests.decisions import make_app
app = make_app("reversible")
"""


@dataclass
class Terminal:
    """A command line beside a desk: Mira and Bo decide, Dan only looks."""

    desk: Desk
    cli: Cli

    async def do(self, *arguments: str, name: str = "Mira") -> Ended:
        """A command of `approvals` as this person."""
        return await self.cli("approvals", *arguments, "--as", name, stdin=f"{PASSWORD}\n")


@pytest.fixture
async def terminal(database: TestDatabase, tmp_path: Path) -> AsyncIterator[Terminal]:
    """The people and the folder with the app."""
    (tmp_path / "letters.py").write_text(APP)
    await people(database.url, Mira="manager", Bo="manager", Dan="viewer")
    async with decisions_on(database, make_app("reversible")) as desk:
        yield Terminal(desk, Cli(database.url, tmp_path))


async def test_show_then_approve_by_the_digest_that_was_shown(terminal: Terminal) -> None:
    held = await terminal.desk.one({"text": "Grüße", "amount": 5})
    shown = await terminal.cli("approvals", "show", str(held.approval_id))
    assert all(words in shown.out for words in ("Grüße", "reversible", "0 of 1", held.digest)), shown.out
    refused(await terminal.cli("approvals", "show", str(held.job_id)), 3, "no approval")
    card = (await terminal.cli("approvals", "show", str(held.approval_id), "--json")).json()
    done = await terminal.do("approve", str(held.approval_id), "--digest", card["digest_hex"])
    assert (done.code, done.out) == (0, "Approved: it goes out now.\n")
    rows = await terminal.desk.database.rows("SELECT actor, door, method FROM deedbox.audit WHERE verb = 'approve'")
    assert rows == [("Mira", "cli", "terminal")]


async def test_an_edit_names_what_waits_then(terminal: Terminal, tmp_path: Path) -> None:
    held = await terminal.desk.one()
    file = tmp_path / "new.json"
    file.write_text(json.dumps({"default-1": {"text": "better"}}))
    given = ["edit", str(held.approval_id), "--digest", held.digest, "--payloads", str(file)]
    refused(await terminal.do(*given), 1, "has no connector 'post'")
    done = await terminal.do(*given, "--app", "letters:app", "--json")
    assert done.code == 0, done.err
    newer = Held(held.approval_id.__class__(done.json()["approval_id"]), done.json()["digest"], held.job_id)
    assert await terminal.desk.state(held) == "superseded"
    shown = await terminal.cli("approvals", "show", str(newer.approval_id))
    assert "edited by" in shown.out
    assert "'hello' -> 'better'" in shown.out
    file.write_text("[]")
    refused(await terminal.do(*given, "--app", "letters:app"), 2, "an object")


async def test_a_say_is_handed_on_listed_and_taken_back(terminal: Terminal) -> None:
    held = await terminal.desk.one()
    handed = await terminal.do("delegate", str(held.approval_id), "--to", "Dan", "--json")
    assert handed.code == 0, handed.err
    listed = (await terminal.do("delegations", "--json", name="Dan")).json()
    assert [(one["holder"], one["to"], one["counts"]) for one in listed] == [("Mira", "Dan", True)]
    refused(await terminal.do("delegate", "--to", "Dan", "--until", "tomorrow"), 2, "--until")
    refused(await terminal.do("delegate", "--to", "Dan", "--until", "2030-01-01T10:00:00"), 1, "zone")
    assert (await terminal.do("withdraw", handed.json()["delegation_id"])).code == 0
    given = ["approve", str(held.approval_id), "--digest", held.digest]
    refused(await terminal.do(*given, name="Dan"), 1, "The say that Mira handed to you is over.")


async def test_several_lines_each_have_their_answer(terminal: Terminal, tmp_path: Path) -> None:
    first, second = await terminal.desk.one(), await terminal.desk.one()
    file = tmp_path / "lines"
    file.write_text(f"{first.approval_id} {first.digest}\n\n{second.approval_id} {'11' * 32}\n")
    done = await terminal.do("decide-many", str(file), "--decision", "approve", "--json")
    assert done.code == 1
    assert "not all of them" in done.err
    assert [(one["state"], one["code"]) for one in done.json()] == [("approved", None), (None, "approval_changed")]
    file.write_text("not an id\n")
    refused(await terminal.do("decide-many", str(file), "--decision", "approve"), 2, "each line")
