"""The session of `deedbox effects` in the documentation: what nobody knows is looked at, and left to two people."""

import re
from pathlib import Path

import pytest

from deedbox.extend.connector import Ambiguous, Refused
from tests.builders import Outbox, Planned, outbox_on
from tests.database import TestDatabase
from tests.pasted import same_in
from tests.servers.commands import PASSWORD, Cli, people
from tests.test_answers import steady

pytestmark = pytest.mark.anyio
PAGE = Path(__file__).resolve().parent.parent / "docs" / "effects.md"
LOST = Ambiguous("timed_out", "No answer came in time.", "body_sent")


async def done(box: Outbox) -> list[str]:
    """Three effects that were sent: one is done, one was refused, of one nobody knows."""
    box.connector.script.extend([LOST, Refused("caller_error", "note_422", "Note answered 422.", "answered")])
    built = [await box.build(Planned(slot, target="crm"), action="note_customer") for slot in ("welcome", "address", "thanks")]
    await box.dispatcher(slots=3).once()
    return [str(one.effect_id) for one in built]


async def test_the_session_in_the_documentation_is_what_the_commands_say(database: TestDatabase, tmp_path: Path):
    async with outbox_on(database) as box:
        await people(database.url, ada="manager", bo="manager")
        cli = Cli(database.url, tmp_path, {"COLUMNS": "120"})
        unknown, *_ = await done(box)
        await box.build(Planned("news", target="crm"), action="note_customer")
        await box.turn(on=False)
        waiting = str(await database.value("SELECT effect_id FROM deedbox.effect WHERE state = 'pending'"))
        # Ages are read out in hours then, and the same in every run.
        await database.shift_clock(3 * 3600 + 60)
        said: list[str] = []
        verb = ("--reason", "Not in their books.")
        for command, code in (
            (("effects", "list"), 0),
            (("effects", "list", "--state", "unknown"), 0),
            (("effects", "show", unknown), 0),
            (("effects", "show", waiting), 0),
            (("effects", "disprove", unknown, "--as", "ada", *verb), 1),
            (("effects", "disprove", unknown, "--as", "bo", *verb), 0),
            (("effects", "cancel", waiting, "--as", "ada", "--reason", "Asked for twice."), 0),
        ):
            ended = await cli(*command, stdin=f"{PASSWORD}\n")
            assert ended.code == code, (command, ended.err, ended.out)
            shown = " ".join(f'"{word}"' if " " in word else word for word in command)
            said += [f"$ deedbox {shown}", *(line.rstrip() for line in f"{ended.out}{ended.err}".splitlines())]
    session = re.sub(r"for \d+ s\b", "for 1 s", steady("\n".join(said)))
    session = re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d(?!:)", "2026-11-30 09:31", session)
    same_in(PAGE, session)
