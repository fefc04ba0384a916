"""Jobs as MCP tasks: created once committed, found by every replica, pushed, cancelled, asked for input, and ended once."""

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import aclosing, asynccontextmanager
from typing import Any
from uuid import UUID

import pytest
from mcp.shared.exceptions import MCPError

from deedbox.store.tell import tell
from tests.database import TestDatabase
from tests.guarantees import proves
from tests.road import until
from tests.servers.mcp_house import (
    CancelTask,
    McpHouse,
    TakesTasks,
    Task,
    TaskParams,
    UpdateParams,
    UpdateTask,
    get_task,
    mcp_house,
    modern,
    sent,
)
from tests.test_mcp import decide

pytestmark = pytest.mark.anyio
TASKS: dict[str, Any] = {"extensions": {"io.modelcontextprotocol/tasks": {}}}
URL: dict[str, Any] = {"elicitation": {"form": {}, "url": {}}}


async def task_of(house: McpHouse, task_id: str, url: str | None = None, capabilities: Any = TASKS) -> dict[str, Any]:
    """A task as it stands at a replica."""
    answer = await house.call("tasks/get", {"taskId": task_id}, capabilities=capabilities, url=url)
    assert "result" in answer, answer
    result: dict[str, Any] = answer["result"]
    return result


async def until_task(house: McpHouse, task_id: str, *statuses: str, capabilities: Any = TASKS) -> dict[str, Any]:
    """The task once it has one of the statuses."""

    async def look() -> dict[str, Any]:
        return await task_of(house, task_id, capabilities=capabilities)

    found: dict[str, Any] = await until(look, lambda task: task["status"] in statuses)
    return found


@proves("G-MCP-TASKS")
async def test_a_job_is_a_task_at_every_replica_and_its_result_is_the_envelope(database: TestDatabase):
    async with mcp_house(database, replicas=2) as house, house.client(extensions=[TakesTasks()]) as client:
        handle: Any = await client.session.call_tool("note_slowly", {"text": "b"}, allow_claimed=True)
        for url in house.replicas * 2:
            task = await task_of(house, handle.task_id, url)
            assert (task["status"], task["resultType"], task["ttlMs"]) == ("working", "complete", None)
            assert task["statusMessage"]
            assert not {"result", "error", "inputRequests", "requestState"} & set(task)
        job_id, _, number = handle.task_id.partition(".")
        assert number == "1"
        house.script.go.set()
        done = await until_task(house, handle.task_id, "completed")
        shown = done["result"]["structuredContent"]
        assert (shown["status"], shown["job_id"], shown["data"]) == ("success", job_id, {"text": "b"})
        # The official client drives the whole of it by itself.
        result = await client.call_tool("note_slowly", {"text": "c"})
        assert (result.structured_content or {})["data"] == {"text": "c"}
        quick: Any = await client.session.call_tool("note_thing", {"text": "a"}, allow_claimed=True)
        assert quick.result_type in {"complete", "task"}


@proves("G-MCP-TASKS")
async def test_how_a_task_ends_says_what_became_of_the_job(database: TestDatabase):
    async with mcp_house(database) as house:
        house.script.go.set()
        ends: dict[str, dict[str, Any]] = {}
        for action, text in (("note_thing", "refuse"), ("note_thing", "break"), ("note_slowly", "away")):
            answer = await house.call("tools/call", {"name": action, "arguments": {"text": text}}, capabilities=TASKS)
            ends[text] = await until_task(house, answer["result"]["taskId"], "completed", "failed", "cancelled")
        # What the business knows is a result; what did not come to an answer is an error, and says what to do in plain words.
        assert ends["refuse"]["status"] == "completed"
        assert ends["refuse"]["result"]["structuredContent"]["error_code"] == "CUSTOMER_NOT_FOUND"
        assert ends["refuse"]["result"].get("isError", False) is False
        for text in ("break", "away"):
            assert (ends[text]["status"], "result" in ends[text]) == ("failed", False)
            assert ends[text]["error"]["code"] == -32603
            assert "inside of things" not in json.dumps(ends[text])


@proves("G-MCP-TASKS")
async def test_a_task_that_failed_stays_failed_when_its_job_is_taken_up_again(database: TestDatabase):
    async with mcp_house(database) as house:
        house.script.go.set()
        params = {"name": "note_slowly", "arguments": {"text": "away"}}
        task_id = (await house.call("tools/call", params, capabilities=TASKS))["result"]["taskId"]
        failed = await until_task(house, task_id, "failed")
        await database.rows(
            "UPDATE deedbox.queue SET state = 'queued', round = 2, attempts_allowed = 4,"
            " run_at = deedbox.clock() + interval '1 day'"
        )
        again = await task_of(house, task_id)
        assert (again["status"], again["taskId"]) == ("failed", failed["taskId"])
        assert (await task_of(house, task_id.replace(".1", ".2")))["status"] == "working"
        unknown = await house.call("tasks/get", {"taskId": task_id.replace(".1", ".3")}, capabilities=TASKS)
        assert unknown["error"]["code"] == -32602


@proves("G-MCP-CANCEL")
async def test_a_task_is_cancelled_and_the_handler_stops(database: TestDatabase):
    async with mcp_house(database, replicas=2) as house, house.client(extensions=[TakesTasks()]) as client:
        handle: Any = await client.session.call_tool("note_slowly", {"text": "b"}, allow_claimed=True)
        await house.script.started.wait()
        cancel = CancelTask(params=TaskParams(task_id=handle.task_id))
        await client.session.send_request(cancel, Task)
        async with asyncio.timeout(2):
            await house.script.stopped.wait()
        ended = await until_task(house, handle.task_id, "cancelled", "completed", "failed")
        assert (ended["status"], "result" in ended, "error" in ended) == ("cancelled", False, False)
        # Again, it is acknowledged all the same, and nothing changes.
        await client.session.send_request(cancel, Task)
        assert (await get_task(client.session, handle.task_id)).status == "cancelled"


@proves("G-MCP-PAGE")
async def test_a_task_asks_for_the_page_once_and_goes_on_when_a_person_has_decided(database: TestDatabase):
    """The answer of a host is noted and decides nothing, whatever it says; the key is not asked again."""
    both: dict[str, Any] = {**TASKS, **URL}
    async with mcp_house(database, replicas=2) as house:
        params = {"name": "send_note", "arguments": {"text": "a"}}
        task_id = (await house.call("tools/call", params, capabilities=both))["result"]["taskId"]
        asked = await until_task(house, task_id, "input_required", capabilities=both)
        ((key, request),) = asked["inputRequests"].items()
        assert request["method"] == "elicitation/create"
        assert (request["params"]["mode"], request["params"]["url"]) == ("url", f"http://127.0.0.1:8484/approvals/{key}")
        # A client that cannot open it is not asked; the task says why it waits.
        waits = await task_of(house, task_id)
        assert waits["status"] == "working"
        assert "approval" in waits["statusMessage"]
        for responses in ({"unknown": {"action": "accept"}}, {key: {"content": {"approve": True}}}, {key: 5}):
            update = {"taskId": task_id, "inputResponses": responses}
            answer = await house.call("tasks/update", update, capabilities=both)
            assert answer["result"]["resultType"] == "complete"
            assert (await task_of(house, task_id, capabilities=both))["status"] == "input_required"
        yes = {key: {"action": "accept", "content": {"decision": "approve"}}}
        await house.call("tasks/update", {"taskId": task_id, "inputResponses": yes}, capabilities=both)
        assert (await task_of(house, task_id, capabilities=both))["status"] == "working"
        assert await database.value("SELECT state FROM deedbox.approval") == "pending"
        await decide(house, await database.value("SELECT approval_id FROM deedbox.approval"))
        done = await until_task(house, task_id, "completed", capabilities=both)
        assert done["result"]["structuredContent"]["status"] == "success"


async def test_a_rejection_is_a_result_and_not_a_fault(database: TestDatabase):
    async with mcp_house(database) as house:
        params = {"name": "send_note", "arguments": {"text": "a"}}
        task_id = (await house.call("tools/call", params, capabilities=TASKS))["result"]["taskId"]

        async def approval() -> Any:
            rows = await database.rows("SELECT approval_id FROM deedbox.approval")
            return rows[0][0] if rows else None

        await decide(house, await until(approval, lambda found: found is not None), "reject")
        done = await until_task(house, task_id, "completed")
        assert done["result"]["structuredContent"]["error_code"] == "APPROVAL_REJECTED"


@proves("G-MCP-FOREIGN")
async def test_a_foreign_task_is_an_unknown_one_and_only_who_takes_tasks_may_ask(database: TestDatabase):
    async with mcp_house(database) as house:
        params = {"name": "note_slowly", "arguments": {"text": "a"}}
        task_id = (await house.call("tools/call", params, capabilities=TASKS))["result"]["taskId"]
        unknown = "0197f2a8-0000-7000-8000-0000000000ff.1"
        for method in ("tasks/get", "tasks/cancel", "tasks/update"):
            more: dict[str, Any] = {"inputResponses": {}} if method == "tasks/update" else {}
            answers = [
                await house.call(method, {"taskId": one, **more}, capabilities=TASKS, key=house.foreign_key)
                for one in (task_id, unknown, "x", task_id.partition(".")[0])
            ]
            assert {json.dumps(answer, sort_keys=True) for answer in answers} == {json.dumps(answers[0], sort_keys=True)}
            assert answers[0]["error"]["code"] == -32602
            undeclared = await house.call(method, {"taskId": task_id, **more})
            assert undeclared["error"]["code"] == -32021
            assert undeclared["error"]["data"] == {"requiredCapabilities": TASKS}
        mismatched = await house.call("tasks/get", {"taskId": task_id}, capabilities=TASKS, headers={"Mcp-Name": unknown})
        assert mismatched["error"]["code"] == -32020
        async with house.client("legacy") as legacy:
            with pytest.raises(MCPError, match="Method not found"):
                await get_task(legacy.session, task_id)
            update = UpdateTask(params=UpdateParams(task_id=task_id, input_responses={}))
            with pytest.raises(MCPError, match="Method not found"):
                await legacy.session.send_request(update, Task)


@asynccontextmanager
async def listening(house: McpHouse, notifications: Any, url: str, key: str = "") -> AsyncGenerator[Any]:
    """The messages of a subscription, as they come."""

    async def messages(lines: Any) -> AsyncGenerator[dict[str, Any]]:
        async for line in lines:
            if line.startswith("data: "):
                yield json.loads(line.removeprefix("data: "))

    params = {"notifications": notifications}
    body = modern("subscriptions/listen", params, TASKS)
    async with (
        house.http(key, url) as http,
        http.stream("POST", "/mcp", content=body, headers=sent("subscriptions/listen", params)) as answer,
        aclosing(messages(answer.aiter_lines())) as found,
    ):
        assert answer.headers["content-type"] == "text/event-stream"
        assert answer.headers["x-accel-buffering"] == "no"
        yield found


@proves("G-MCP-PUSH")
async def test_each_change_of_a_task_is_pushed_from_whichever_process_it_comes(database: TestDatabase):
    async with mcp_house(database, replicas=2) as house:
        params = {"name": "note_slowly", "arguments": {"text": "a"}}
        task_id = (await house.call("tools/call", params, capabilities=TASKS, url=house.replicas[0]))["result"]["taskId"]
        uri = f"job://{task_id.partition('.')[0]}"
        wanted = {"taskIds": [task_id, "0197f2a8-0000-7000-8000-0000000000ff.1"]}
        async with listening(house, wanted, house.replicas[1]) as found:
            first = await anext(found)
            assert first["method"] == "notifications/subscriptions/acknowledged"
            assert first["params"]["notifications"] == {"taskIds": [task_id]}
            assert first["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"] == 1
            told = [await anext(found)]
            assert (told[0]["method"], told[0]["params"]["status"]) == ("notifications/tasks", "working")
            await house.script.started.wait()
            # A wake without news tells nothing.
            await tell(house.installation.pool, jobs=[UUID(task_id.partition(".")[0])])
            house.script.go.set()
            told += [message async for message in found]
        assert told[-1]["result"]["_meta"]["io.modelcontextprotocol/subscriptionId"] == 1
        pushed = [message["params"] for message in told[:-1]]
        assert all(one["_meta"]["io.modelcontextprotocol/subscriptionId"] == 1 for one in pushed)
        last = {name: value for name, value in pushed[-1].items() if name != "_meta"}
        got = await task_of(house, task_id)
        assert last == {name: value for name, value in got.items() if name not in {"_meta", "resultType"}}
        assert last["status"] == "completed"
        assert len({json.dumps(one, sort_keys=True) for one in pushed}) == len(pushed), "told twice"
        # A stranger is told of nothing, and not even whether there is such a task.
        async with listening(house, {**wanted, "resourceSubscriptions": [uri]}, house.replicas[0], house.foreign_key) as found:
            assert (await anext(found))["params"]["notifications"] == {}


@proves("G-MCP-PUSH")
async def test_a_job_that_is_watched_as_a_resource_says_that_it_changed(database: TestDatabase):
    async with mcp_house(database, replicas=2) as house, house.client() as client:
        pending = await client.call_tool("note_slowly", {"text": "a"})
        uri = f"job://{(pending.structured_content or {})['job_id']}"
        await house.script.started.wait()
        async with client.listen(resource_subscriptions=[uri, "job://x", "file:///x"]) as changes:
            assert changes.honored.resource_subscriptions == [uri]
            house.script.go.set()
            async with asyncio.timeout(10):
                event: Any = await anext(aiter(changes))
            assert event.uri == uri
