"""The MCP face with the official client, in both eras: what is listed, called, waited for, read, asked and refused."""

import asyncio
import json
from typing import Any
from uuid import UUID

import pytest
from jsonschema_rs import validator_for
from mcp import Client
from mcp.shared.exceptions import MCPError
from mcp_types import ElicitRequestURLParams, ElicitResult

from deedbox.access import add_key, add_user, mint_personal_key
from deedbox.access.sessions import login, resolve_session
from deedbox.operate.tools import ENVELOPE_SCHEMA
from tests.database import TestDatabase
from tests.guarantees import proves
from tests.road import until
from tests.servers.mcp_house import ERAS, MODERN, Era, McpHouse, mcp_house

pytestmark = pytest.mark.anyio
_SHAPE = validator_for(dict(ENVELOPE_SCHEMA))
SECRET = "correct horse, battery"


def shape(result: Any) -> dict[str, Any]:
    """The envelope of a result, which has the one shape; its text says the same."""
    shown: dict[str, Any] = result.structured_content
    _SHAPE.validate(shown)
    assert json.loads(result.content[1].text) == shown
    assert result.content[0].text
    return shown


async def ended(client: Client, envelope: dict[str, Any]) -> dict[str, Any]:
    """The answer once its job is over."""
    while envelope["status"] == "pending":
        data: dict[str, Any] = envelope["data"] or {}
        after: int = data.get("next_after", 0)
        envelope = shape(await client.call_tool("get_job", {"job_id": envelope["job_id"], "after": after, "wait_s": 20}))
    return envelope


@proves("G-MCP-LIST")
@pytest.mark.parametrize("era", ERAS)
async def test_each_is_shown_what_they_may_use_in_order_with_true_annotations(database: TestDatabase, era: Era):
    async with mcp_house(database, working=False) as house:
        pool, ids = house.installation.pool, house.installation.ids
        viewer = await add_key(pool, ids, "default", "watcher", ["viewer"], "")
        manager = await add_key(pool, ids, "default", "boss", ["manager"], "")
        shown: dict[str, list[str]] = {}
        for name, key in (("operator", house.key), ("viewer", viewer), ("manager", manager)):
            async with house.client(era, key=key) as client:
                listed = await client.list_tools()
                shown[name] = [tool.name for tool in listed.tools]
                for tool in listed.tools:
                    assert tool.output_schema == ENVELOPE_SCHEMA
                    assert tool.annotations is not None
                    assert tool.input_schema["additionalProperties"] is False, tool.name
                if era == MODERN:
                    assert (listed.cache_scope, (listed.ttl_ms or 0) > 0) == ("private", True)
        assert shown["operator"] == ["cancel_job", "get_job", "note_slowly", "note_thing", "send_note"]
        assert shown["viewer"] == ["get_job"]
        # A service key with a manager's roles decides nothing, so it is not shown how.
        assert shown["manager"] == ["cancel_job", "get_job", "read_books"]
        hints = {tool.name: tool.annotations for tool in (await _listed(house, era, manager)).tools}
        assert hints["read_books"].read_only_hint is True
        assert hints["cancel_job"].destructive_hint is True


async def _listed(house: McpHouse, era: Era, key: str) -> Any:
    async with house.client(era, key=key) as client:
        return await client.list_tools()


@proves("G-MCP-START")
@pytest.mark.parametrize("era", ERAS)
async def test_what_is_quick_is_answered_and_what_is_slow_has_a_job_within_two_seconds(database: TestDatabase, era: Era):
    async with mcp_house(database) as house, house.client(era) as client:
        quick = shape(await client.call_tool("note_thing", {"text": "a"}))
        assert (quick["status"], quick["data"]) == ("success", {"text": "a"})
        began = asyncio.get_running_loop().time()
        slow = shape(await client.call_tool("note_slowly", {"text": "b"}))
        assert asyncio.get_running_loop().time() - began < 2
        assert (slow["status"], slow["retryable"]) == ("pending", True)
        assert slow["job_id"] in json.dumps(slow)
        # What follows is told by number, waits for news, and ends with the result.
        await house.script.started.wait()

        async def look() -> dict[str, Any]:
            return shape(await client.call_tool("get_job", {"job_id": slow["job_id"]}))

        first = await until(look, lambda seen: seen["data"]["partial"] is not None)
        assert first["data"]["partial"]["draft"] is True
        assert {"text": "b"} in first["data"]["partial"].values()
        assert first["data"]["progress"]["message"] == "begun"
        asked = asyncio.create_task(
            client.call_tool("get_job", {"job_id": slow["job_id"], "after": first["data"]["next_after"], "wait_s": 20})
        )
        house.script.go.set()
        after = shape(await asked)
        assert next(event["seq"] for event in after["data"]["events"]) == first["data"]["next_after"] + 1
        last = after
        while last["status"] == "pending":
            last = shape(
                await client.call_tool("get_job", {"job_id": slow["job_id"], "after": last["data"]["next_after"], "wait_s": 20})
            )
        assert last["data"]["result"] == {"text": "b"}, last
        assert house.script.runs == 2


@pytest.mark.parametrize("era", ERAS)
async def test_a_failure_that_the_business_knows_is_an_answer(database: TestDatabase, era: Era):
    async with mcp_house(database) as house, house.client(era) as client:
        refused: Any = await client.call_tool("note_thing", {"text": "refuse"})
        assert (shape(refused)["error_code"], refused.is_error) == ("CUSTOMER_NOT_FOUND", False)
        assert refused.content[0].text.startswith("CUSTOMER_NOT_FOUND: ")
        broken = await ended(client, shape(await client.call_tool("note_thing", {"text": "break"})))
        assert broken["error_code"] == "INTERNAL_ERROR"
        assert "inside of things" not in json.dumps(broken)
        wrong = await client.call_tool("note_thing", {"text": 5, "role": "admin"})
        assert {error["pointer"] for error in shape(wrong)["errors"]} == {"/text", "/role"}
        assert await house.stored() == 2


@pytest.mark.parametrize("era", ERAS)
async def test_a_tool_of_another_role_and_an_unknown_one_are_answers_and_start_nothing(database: TestDatabase, era: Era):
    async with mcp_house(database, working=False) as house, house.client(era) as client:
        for name in ("read_books", "no_such_thing", "decide_approval"):
            answer = await client.session.call_tool(name, {"text": "a"})
            assert (answer.structured_content or {})["status"] == "error", name
            assert answer.is_error, name
        for wrong in ({}, {"job_id": 5}, {"job_id": "x" * 40}, {"job_id": "x", "wait_s": 21}, {"job_id": "x", "more": 1}):
            assert shape(await client.call_tool("get_job", wrong))["error_code"] == "INVALID_INPUT", wrong
        assert await house.stored() == 0


@proves("G-MCP-PROGRESS")
@pytest.mark.parametrize("era", ERAS)
async def test_progress_is_told_to_a_caller_with_a_token_and_missed_by_nobody_without(database: TestDatabase, era: Era):
    async with mcp_house(database) as house, house.client(era) as client:
        told: list[tuple[float, float | None, str | None]] = []

        async def tell(progress: float, total: float | None, message: str | None) -> None:
            told.append((progress, total, message))

        pending = shape(await client.call_tool("note_slowly", {"text": "b"}, progress_callback=tell))
        assert told == [(1.0, 3.0, "begun")]
        asked = asyncio.create_task(
            client.call_tool("get_job", {"job_id": pending["job_id"], "after": 3, "wait_s": 20}, progress_callback=tell)
        )
        house.script.go.set()
        await asked
        done = shape(await client.call_tool("get_job", {"job_id": pending["job_id"], "wait_s": 1}))
        assert done["job_id"] == pending["job_id"]


@proves("G-MCP-CANCEL")
@pytest.mark.parametrize("era", ERAS)
async def test_a_cancel_reaches_the_handler_within_two_seconds(database: TestDatabase, era: Era):
    async with mcp_house(database) as house, house.client(era) as client:
        job_id = shape(await client.call_tool("note_slowly", {"text": "b"}))["job_id"]
        await house.script.started.wait()
        await client.call_tool("cancel_job", {"job_id": job_id, "reason": "Not needed any more."})
        async with asyncio.timeout(2):
            await house.script.stopped.wait()

        async def look() -> str:
            return str(shape(await client.call_tool("get_job", {"job_id": job_id}))["error_code"])

        assert await until(look, lambda code: code == "CANCELED") == "CANCELED"
        again = shape(await client.call_tool("cancel_job", {"job_id": job_id}))
        assert again["error_code"] == "NOT_CANCELED"


@proves("G-MCP-FOREIGN")
@pytest.mark.parametrize("era", ERAS)
async def test_a_foreign_job_is_an_unknown_one_by_every_way(database: TestDatabase, era: Era):
    async with mcp_house(database, working=False) as house:
        async with house.client(era) as client:
            job_id = shape(await client.call_tool("note_thing", {"text": "a"}))["job_id"]
        async with house.client(era, key=house.foreign_key) as stranger:
            answers: list[Any] = []
            for one in (job_id, str(UUID(int=7))):
                answers.append(
                    [
                        {**shape(await stranger.call_tool(name, {"job_id": one})), "audit_id": "-"}
                        for name in ("get_job", "cancel_job")
                    ]
                )
                with pytest.raises(MCPError) as refused:
                    await stranger.read_resource(f"job://{one}")
                assert refused.value.code == -32602
            assert answers[0] == answers[1]
            assert answers[0][0]["error_code"] == "NOT_FOUND"


@pytest.mark.parametrize("era", ERAS)
async def test_a_job_is_read_as_a_resource(database: TestDatabase, era: Era):
    async with mcp_house(database) as house, house.client(era) as client:
        job_id = shape(await client.call_tool("note_thing", {"text": "a"}))["job_id"]
        templates = await client.list_resource_templates()
        assert [one.uri_template for one in templates.resource_templates] == ["job://{job_id}"]
        assert not [one.uri for one in (await client.list_resources()).resources if one.uri.startswith("job:")]
        read: Any = await client.read_resource(f"job://{job_id}")
        shown = json.loads(read.contents[0].text)
        _SHAPE.validate(shown)
        assert shown["data"]["result"] == {"text": "a"}
        for wrong in ("job://x", "job://", "file:///etc/passwd", "ui://deedbox/other"):
            with pytest.raises(MCPError):
                await client.read_resource(wrong)


@proves("G-MCP-PAGE")
@pytest.mark.parametrize("era", ERAS)
async def test_a_person_is_asked_by_url_and_the_host_answers_nothing(database: TestDatabase, era: Era):
    """Whatever the host answers decides nothing; it is asked once, and what a person decides on the page is what happens."""
    async with mcp_house(database) as house:
        asked: list[ElicitRequestURLParams] = []

        async def open_page(_context: Any, params: Any) -> ElicitResult:
            asked.append(params)
            return ElicitResult(action="accept")

        async with house.client(era, elicitation_callback=open_page) as client:
            held = shape(await client.call_tool("send_note", {"text": "a"}))
            assert (held["status"], held["data"]["reason"]) == ("pending", "awaiting_approval")
            (only,) = asked
            approval_id = await database.value("SELECT approval_id FROM deedbox.approval")
            assert (only.mode, only.url) == ("url", f"http://127.0.0.1:8484/approvals/{approval_id}")
            again = shape(await client.call_tool("send_note", {"text": "a"}))
            assert (again["job_id"], len(asked)) == (held["job_id"], 1)
            assert await database.value("SELECT state FROM deedbox.approval") == "pending"
            assert await database.value("SELECT shown FROM deedbox.approval") == "accept"
            await decide(house, approval_id)

            async def look() -> str:
                return str(shape(await client.call_tool("get_job", {"job_id": held["job_id"], "wait_s": 5}))["status"])

            assert await until(look, lambda status: status != "pending") == "success"
        # A client that cannot open a page is told where it is, and asked nothing.
        async with house.client(era) as plain:
            other = shape(await plain.call_tool("send_note", {"text": "b"}))
            assert other["data"]["approvals"][0]["url"].startswith("http://127.0.0.1:8484/approvals/")
        assert len(asked) == 1


async def person(house: McpHouse, name: str = "Ada") -> Any:
    """A manager in a session."""
    pool, ids = house.installation.pool, house.installation.ids
    await add_user(pool, ids, "default", name, ["manager"], SECRET)
    opened = await login(pool, "default", name, SECRET, guard=house.installation.guard, peer="127.0.0.1")
    assert opened is not None
    return opened


async def decide(house: McpHouse, approval_id: Any, decision: Any = "approve") -> None:
    """Decide as a person, as the page does."""
    opened = await person(house)
    card = await house.installation.approvals.card("default", approval_id, opened.principal)
    assert card is not None
    reason = "No." if decision == "reject" else None
    await house.installation.approvals.decide(opened.principal, approval_id, card.digest_hex, decision, reason, "page")


@proves("G-MCP-DECIDE")
@pytest.mark.parametrize("era", ERAS)
async def test_only_a_person_is_shown_how_to_decide_and_may(database: TestDatabase, era: Era):
    async with mcp_house(database) as house:
        pool, ids = house.installation.pool, house.installation.ids
        async with house.client(era) as agent:
            held = shape(await agent.call_tool("send_note", {"text": "a"}))
        (approval,) = held["data"]["approvals"]
        opened = await person(house)
        session = await resolve_session(pool, opened.token)
        assert session is not None
        minted = await mint_personal_key(pool, ids, session.principal, "", 3600, door="api")
        card = await house.installation.approvals.card("default", UUID(approval["approval_id"]), session.principal)
        assert card is not None
        given = {"approval_id": approval["approval_id"], "digest": card.digest_hex, "decision": "approve"}
        async with house.client(era, key=minted.key) as client:
            (tool,) = [one for one in (await client.list_tools()).tools if one.name == "decide_approval"]
            # It is for the page that a person looks at, never for the model.
            assert (tool.meta or {})["ui"] == {"visibility": ["app"]}
            wrong = shape(await client.call_tool("decide_approval", {**given, "digest": "0" * 64}))
            assert wrong["status"] == "error"
            done = shape(await client.call_tool("decide_approval", given))
            assert (done["status"], done["data"]["state"]) == ("success", "approved")
        async with house.client(era) as agent:
            refused = await agent.session.call_tool("decide_approval", given)
            assert (refused.structured_content or {})["status"] == "error"
        assert await database.value("SELECT decided_how FROM deedbox.approval") == "mcp"
