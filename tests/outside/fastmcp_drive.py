"""What FastMCP's client makes of Deedbox: run by the environment of outside agents, told by arguments, answers in JSON.

`fastmcp_drive.py URL ERA TOOL ARGUMENTS [task]`; the key stands in the environment.
"""
# pyright: basic, reportMissingImports=false
# FastMCP is in an environment of its own, so that nothing of it comes into Deedbox's.

import asyncio
import json
import os
import sys
from typing import Literal

from fastmcp import Client
from fastmcp.client.transports import StreamableHttpTransport
from mcp.client.extension import ClientExtension, ResultClaim
from mcp_types import CallToolResult, Request, RequestParams, Result

TASKS = "io.modelcontextprotocol/tasks"
POLL_S = 0.1


class TaskParams(RequestParams):
    """Which task."""

    task_id: str


class GetTask(Request):
    """Asks how a task stands."""

    method: Literal["tasks/get"] = "tasks/get"
    params: TaskParams
    name_param = "taskId"


class Task(Result):
    """A task as it is told."""

    status: str = ""
    result: dict | None = None


class Handle(Result):
    """The answer to a call that became a task."""

    result_type: Literal["task"] = "task"
    task_id: str


class Tasks(ClientExtension):
    """The client's half of the extension, polling."""

    identifier = TASKS
    seen: list = []  # noqa: RUF012 -- one call for each process

    def claims(self):
        """The shape of a task."""
        return [ResultClaim(result_type="task", model=Handle, resolve=self.resolve)]

    async def resolve(self, handle, ctx):
        """Wait for the task's end."""
        self.seen.append(handle.task_id)
        while True:
            task = await ctx.session.send_request(GetTask(params=TaskParams(task_id=handle.task_id)), Task)
            if task.status in {"completed", "failed", "cancelled"}:
                return CallToolResult.model_validate(task.result or {"content": [], "structuredContent": {"task": task.status}})
            await asyncio.sleep(POLL_S)


async def main():
    """Call one tool and print what came of it."""
    url, era, tool, arguments, *more = sys.argv[1:]
    transport = StreamableHttpTransport(url, headers={"Authorization": f"Bearer {os.environ['DEEDBOX_KEY']}"})
    extensions = [Tasks()] if more else []
    async with Client(transport, mode="legacy" if era == "legacy" else "auto", extensions=extensions, timeout=60) as client:
        listed = sorted(one.name for one in await client.list_tools())
        done = await client.call_tool(tool, json.loads(arguments), raise_on_error=False)
        sys.stdout.write(json.dumps({"tools": listed, "answer": done.structured_content, "tasks": Tasks.seen}))


asyncio.run(main())
