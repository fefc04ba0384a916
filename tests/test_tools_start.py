"""Tools that are only started: what a call waits for, where its action says something of that."""

from typing import Any
from uuid import uuid4

import pytest
from pydantic import BaseModel, Field

from deedbox import __version__
from deedbox.extend.context import Context
from deedbox.model.policy import allow
from deedbox.operate.follow import Follow
from tests.builders import ScriptedConnector
from tests.database import TestDatabase
from tests.guarantees import proves
from tests.servers.installed import house
from tests.test_tools_http import key
from tests.toolbox import Made, Play, toolbox, toolbox_app

pytestmark = pytest.mark.anyio
_MODERN = "2026-07-28"


class Work(BaseModel):
    """What is to be done."""

    name: str = Field(max_length=40)


def app() -> Any:
    """The toolbox with a tool that nobody waits for, and one that is waited for longer than any face does."""
    made = toolbox_app(Play(), ScriptedConnector())

    @made.action(roles=["operator"], policy=allow(), tool=True, tool_wait=0)
    async def start_work(_ctx: Context, work: Work) -> Made:
        """Start some work."""
        return Made(name=work.name)

    @made.action(roles=["operator"], policy=allow(), tool=True, tool_wait="1h")
    async def do_work(_ctx: Context, work: Work) -> Made:
        """Do some work."""
        return Made(name=work.name)

    assert start_work is not do_work
    return made


def _mcp_call(tool: str, number: int) -> dict[str, Any]:
    meta: dict[str, Any] = {
        "io.modelcontextprotocol/protocolVersion": _MODERN,
        "io.modelcontextprotocol/clientCapabilities": {},
    }
    params: dict[str, Any] = {"name": tool, "arguments": {"name": "Ada"}, "idempotencyKey": f"mcp-{number}", "_meta": meta}
    return {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}


@proves("G-TOOL-START")
async def test_the_action_says_whether_a_call_is_waited_for(database: TestDatabase, monkeypatch: pytest.MonkeyPatch) -> None:
    """By either face it is answered at once where the action says so, and waited for where it does not."""
    waited: list[float] = []

    async def nothing(*given: Any, **_: Any) -> None:
        waited.append(given[3])

    monkeypatch.setattr(Follow, "outcome", nothing)
    monkeypatch.setattr(Follow, "job", nothing)
    async with house(database, app()) as site, site.api(await key(site, "operator")) as client:
        modern = {"MCP-Protocol-Version": _MODERN, "Mcp-Method": "tools/call", "Accept": "application/json, text/event-stream"}

        async def by_http(tool: str, query: str = "") -> dict[str, Any]:
            sent = {"Idempotency-Key": str(uuid4())}
            return (await client.post(f"/api/tools/{tool}{query}", json={"name": "Ada"}, headers=sent)).json()

        async def by_mcp(tool: str) -> dict[str, Any]:
            sent = modern | {"Mcp-Name": tool}
            answer = await client.post("/mcp", json=_mcp_call(tool, len(waited)), headers=sent)
            return answer.json()["result"]["structuredContent"]

        for got in (await by_http("start_work"), await by_mcp("start_work")):
            assert (got["status"], got["data"]["reason"]) == ("pending", "queued"), got
        assert waited == []
        for call in (by_http("start_work", "?wait_s=3"), by_http("do_work"), by_mcp("do_work")):
            await call
        assert waited == [3.0, 5.0, 1.5]


@proves("G-TOOL-START", "G-TOOL-SHAPE")
async def test_what_is_said_at_once_is_what_the_job_says_of_itself(database: TestDatabase) -> None:
    """Nothing is read for the answer, and yet it is the one that is given for the job as it is stored."""
    async with toolbox(database) as box:
        at_once = await box.call("create_lead", {"name": "Ada"}, wait_s=0)
        read = await box.tools.outcome(box.operator, str(at_once.job_id))
        assert {**at_once.shown(), "audit_id": None} == {**read.shown(), "audit_id": None}
        assert (at_once.state, at_once.retry_after_s) == (read.state, read.retry_after_s)
        held = await box.call("erase_lead", {"name": "Ada"}, wait_s=0)
        assert held.data is not None
        assert (held.state, len(held.data["approvals"])) == ("awaiting_human", 1)


@proves("G-TOOL-START", "G-TOOL-AUDIT")
async def test_a_start_has_its_line_in_the_journal(database: TestDatabase) -> None:
    """The line says of the job what one says that was waited for, as far as there is something to say."""
    async with toolbox(database) as box:
        box.work()
        parent = await box.parent(calls=4)
        got = await box.call("create_lead", {"name": "Ada"}, wait_s=0, parent_job_id=parent, caller_run="run-7")
        row = await box.row(got.audit_id)
        keys = await database.rows("SELECT key_sha256 FROM deedbox.job WHERE job_id = %s", got.job_id)
        assert (row["status"], row["role"], row["caller_run"], str(row["job_id"])) == (
            "answered",
            "operator",
            "run-7",
            got.job_id,
        )
        assert (str(row["parent_job_id"]), row["key_sha256"]) == (parent, keys[0][0])
        assert row["duration_ms"] > 0
        assert len(row["input_sha256"]) == 32
        assert row["detail"] == {"answer": "pending", "state": "queued", "build": __version__, "validation": "valid"}
