"""A file of inputs through the real command line."""

import json
from pathlib import Path

import pytest

from tests.database import TestDatabase
from tests.servers.commands import PASSWORD, Cli, refused

pytestmark = pytest.mark.anyio

APP = """
from pydantic import BaseModel
from deedbox import App, Context, allow

app = App()


class Note(BaseModel):
    id: int
    text: str


@app.action(roles=["operator"], policy=allow())
async def take_note(_ctx: Context, note: Note) -> Note:
    return note
"""


async def test_a_file_is_submitted_line_by_line_and_once(database: TestDatabase, tmp_path: Path) -> None:
    cli = Cli(database.owner_url, tmp_path)
    (tmp_path / "notes.py").write_text(APP)
    lines = [json.dumps({"id": number, "text": f"note {number}"}) for number in range(1200)]
    wrong = ["", "{", '{"id": 1200}', '{"text": "no id"}', '{"id": 7, "text": "another"}']
    (tmp_path / "notes.jsonl").write_text("\n".join([*lines, *wrong]) + "\n")
    said = {"stdin": f"{PASSWORD}\n"}
    assert (await cli("users", "add", "Ada", "--role", "operator", **said)).code == 0
    call = ("jobs", "submit", "notes.py", "take_note", "notes.jsonl", "--as", "Ada", "--key-from", "id")
    first = await cli(*call, **said)
    assert (first.code, "not every line was accepted" in first.err) == (1, True)
    head, *table = first.out.splitlines()
    assert head == "1,200 accepted, 0 were there already, 4 refused"
    assert [line.split()[:2] for line in table[1:]] == [
        ["1202", "invalid_json"],
        ["1203", "invalid_input"],
        ["1204", "key_invalid"],
        ["1205", "key_reused"],
    ]
    again = (await cli(*call, "--json", **said)).json()
    assert (again["accepted"], again["replayed"], len(again["refused"])) == (0, 1200, 4)
    assert again["refused"][2]["line"] == 1204
    assert "/id" in again["refused"][2]["message"]
    assert await database.value("SELECT count(*) FROM deedbox.job") == 1200
    codes = await database.rows("SELECT DISTINCT error_code FROM deedbox.call WHERE status = 'refused' ORDER BY 1")
    assert [row[0] for row in codes] == ["invalid_input", "invalid_json", "key_invalid", "key_reused"]
    refused(await cli("jobs", "submit", "notes.py", "take_note", "nothing.jsonl", "--as", "Ada", **said), 2, "nothing.jsonl")
    unknown = await cli("jobs", "submit", "notes.py", "drop_note", "notes.jsonl", "--as", "Ada", "--json", **said)
    assert {one["code"] for one in json.loads(unknown.out)["refused"]} == {"not_found", "invalid_json"}


async def test_a_file_names_a_registered_receiver_for_all_of_its_lines(database: TestDatabase, tmp_path: Path) -> None:
    receiver = {"name": "desk", "url": "http://127.0.0.1:9/hook", "secrets": ["whsec_" + "QUJD" * 8]}
    cli = Cli(database.owner_url, tmp_path, {"DEEDBOX_CALLBACKS": json.dumps([receiver])})
    (tmp_path / "notes.py").write_text(APP)
    (tmp_path / "notes.jsonl").write_text('{"id": 1, "text": "a"}\n{"id": 2, "text": "b"}\n')
    said = {"stdin": f"{PASSWORD}\n"}
    assert (await cli("users", "add", "Ada", "--role", "operator", **said)).code == 0
    call = ("jobs", "submit", "notes.py", "take_note", "notes.jsonl", "--as", "Ada", "--key-from", "id", "--json")
    wrong = await cli(*call, "--callback", "nobody", **said)
    assert [one["code"] for one in json.loads(wrong.out)["refused"]] == ["invalid_input", "invalid_input"]
    assert (await cli(*call, "--callback", "desk", **said)).json()["accepted"] == 2
    assert await database.rows("SELECT target, count(*) FROM deedbox.callback GROUP BY target") == [("desk", 2)]
