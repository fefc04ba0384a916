"""The API beside the plain decision, which the table of doors proves: edit, hand on, several at once, and what it refuses."""

from typing import Any

import pytest

from tests.database import TestDatabase
from tests.road import principal
from tests.servers.api import PERSON_TOKEN, Api, api, problem_of

pytestmark = pytest.mark.anyio

UNKNOWN = "00000000-0000-7000-8000-000000000000"


async def held(one: Api, key: str) -> dict[str, Any]:
    """Submit, run to the hold, and return the card of what waits."""
    async with one.client() as program, one.client(PERSON_TOKEN) as person:
        sent = await program.post("/api/actions/send_note/jobs", json={"text": key}, headers={"Idempotency-Key": key})
        job_id = sent.json()["job_id"]
        while not (found := (await program.get(f"/api/jobs/{job_id}?wait=5")).json())["approvals"]:
            pass
        return (await person.get(f"/api/approvals/{found['approvals'][0]['approval_id']}")).json()


async def test_edit_delegate_and_many_over_the_api(database: TestDatabase) -> None:
    async with api(database) as one, one.client(PERSON_TOKEN) as person, one.client() as program:
        one.road.start(one.road.worker())
        await principal(database, one.road.ids, "Dan", "person", "viewer")
        card = await held(one, "first")
        where = f"/api/approvals/{card['approval_id']}"
        assert (card["rule"], card["consequence"], card["quorum"]) == ("hold_every_effect", "consequential", 1)
        edit = {"digest": card["digest"], "payloads": {"note": {"text": "kinder"}}}
        assert problem_of(await program.post(f"{where}/edit", json=edit))[:2] == (403, "person_required")
        wrong: list[tuple[dict[str, Any], str]] = [
            ({"payloads": {}}, "/payloads"),
            ({"digest": "x"}, "/digest"),
            ({"payloads": {"other": {}}}, "/payloads/other"),
            ({"target": "elsewhere"}, "/target"),
        ]
        for changed, pointer in wrong:
            assert problem_of(await person.post(f"{where}/edit", json={**edit, **changed})) == (400, "invalid_input", [pointer])
        edited = await person.post(f"{where}/edit", json=edit)
        assert edited.status_code == 200, edited.text
        newer = edited.json()
        assert (newer["revision"], newer["slots"], newer["supersedes"]) == (2, ["note"], card["approval_id"])
        shown = (await person.get(f"/api/approvals/{newer['approval_id']}")).json()
        assert shown["edited"]["changes"][0]["after"] == "kinder"
        decision = {"decision": "approve", "digest": newer["digest"]}
        refused = await person.post(f"/api/approvals/{newer['approval_id']}/decision", json=decision)
        assert problem_of(refused)[:2] == (403, "permission_denied")
        handed = await person.post(f"/api/approvals/{newer['approval_id']}/delegate", json={"to": "Dan"})
        assert problem_of(handed)[:2] == (403, "permission_denied")

        other = await held(one, "second")
        handed = await person.post(f"/api/approvals/{other['approval_id']}/delegate", json={"to": "Dan", "reason": "away"})
        assert (handed.status_code, handed.json()["to"]) == (200, "Dan")
        for until in ("2030-01-01T10:00:00", 1_900_000_000, "soon"):
            sent = await person.post("/api/delegations", json={"to": "Dan", "until": until})
            assert problem_of(sent) == (400, "invalid_input", ["/until"])
        (listed,) = (await person.get("/api/delegations")).json()["delegations"]
        assert (listed["to"], listed["counts"]) == ("Dan", True)
        gone = await person.post(f"/api/delegations/{listed['delegation_id']}/withdraw", json={})
        assert gone.json()["withdrawn"] is True
        assert problem_of(await person.post(f"/api/delegations/{UNKNOWN}/withdraw", json={}))[:2] == (404, "not_found")

        lines = [{"approval_id": other["approval_id"], "digest": other["digest"]}]
        many = {"decision": "approve", "approvals": lines}
        assert problem_of(await person.post("/api/approvals/decisions", json=many))[:2] == (400, "invalid_input")
        await database.rows("UPDATE deedbox.approval SET consequence = 'reversible'")
        assert problem_of(await program.post("/api/approvals/decisions", json=many))[:2] == (403, "person_required")
        answers = (await person.post("/api/approvals/decisions", json=many)).json()["answers"]
        assert [(answer["state"], answer["code"]) for answer in answers] == [("approved", None)]


async def test_every_route_of_approvals_is_described(database: TestDatabase) -> None:
    async with api(database) as one, one.client() as program:
        paths = (await program.get("/api/openapi.json")).json()["paths"]
    found = {path for path in paths if path.startswith(("/api/approvals", "/api/delegations"))}
    assert found == {
        "/api/approvals",
        "/api/approvals/decisions",
        "/api/approvals/{approval_id}",
        "/api/approvals/{approval_id}/comments",
        "/api/approvals/{approval_id}/decision",
        "/api/approvals/{approval_id}/delegate",
        "/api/approvals/{approval_id}/edit",
        "/api/approvals/{approval_id}/snooze",
        "/api/delegations",
        "/api/delegations/{delegation_id}/withdraw",
    }
