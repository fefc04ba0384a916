"""An agent of pydantic-ai that acts through Deedbox over HTTP: `python -m examples.agents.with_pydantic_ai "…"`.

From the environment: DEEDBOX_URL and DEEDBOX_KEY; MODEL_URL (any OpenAI-compatible endpoint), MODEL_NAME and MODEL_KEY.
"""

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable
from typing import Any
from uuid import uuid4

from pydantic_ai import Agent, Tool
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider
from pydantic_ai.usage import UsageLimits

from examples.agents.toolset import DeedboxTools

MOST_REQUESTS = 8


def calling(deedbox: DeedboxTools, name: str) -> Callable[..., Awaitable[dict[str, Any]]]:
    """The function that the agent calls for a tool."""

    async def call(**arguments: Any) -> dict[str, Any]:
        return await deedbox.call(name, arguments)

    return call


async def run(question: str) -> str:
    """Answer a question with what Deedbox can do."""
    provider = OpenAIProvider(base_url=os.environ["MODEL_URL"], api_key=os.environ.get("MODEL_KEY", "none"))
    model = OpenAIChatModel(os.environ["MODEL_NAME"], provider=provider)
    async with DeedboxTools(os.environ["DEEDBOX_URL"], os.environ["DEEDBOX_KEY"], run=uuid4().hex) as deedbox:
        tools = [
            Tool.from_schema(calling(deedbox, one.name), one.name, one.description, one.schema) for one in await deedbox.tools()
        ]
        # No retries around an agent that has called tools: what was done stays done, under its key.
        agent = Agent(model, tools=tools, instructions="You run a warehouse desk. Say what became of it.", retries=0)
        result = await agent.run(question, usage_limits=UsageLimits(request_limit=MOST_REQUESTS))
    return result.output


if __name__ == "__main__":
    sys.stdout.write(asyncio.run(run(sys.argv[1])) + "\n")
