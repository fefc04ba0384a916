"""An agent of the OpenAI Agents SDK that acts through Deedbox over MCP: `python examples/agents/with_openai_agents.py "…"`.

From the environment: DEEDBOX_URL and DEEDBOX_KEY; MODEL_URL (any OpenAI-compatible endpoint), MODEL_NAME and MODEL_KEY.
"""
# pyright: basic, reportMissingImports=false, reportAttributeAccessIssue=false
# The SDK is in an environment of its own, so that nothing of it comes into Deedbox's.

import asyncio
import os
import sys

from openai import AsyncOpenAI

from agents import Agent, OpenAIChatCompletionsModel, Runner, set_tracing_disabled
from agents.mcp import MCPServerStreamableHttp

MOST_TURNS = 8


async def run(question: str) -> str:
    """Answer a question with what Deedbox can do."""
    # The SDK would send what the agent did to its maker; nothing leaves but what is meant to.
    set_tracing_disabled(disabled=True)
    client = AsyncOpenAI(base_url=os.environ["MODEL_URL"], api_key=os.environ.get("MODEL_KEY", "none"), max_retries=0)
    headers = {"Authorization": f"Bearer {os.environ['DEEDBOX_KEY']}"}
    server = MCPServerStreamableHttp(
        {"url": f"{os.environ['DEEDBOX_URL']}/mcp", "headers": headers},
        client_session_timeout_seconds=60,
        cache_tools_list=True,
        use_structured_content=True,
    )
    async with server:
        agent = Agent(
            name="warehouse",
            instructions="You run a warehouse desk. Where an answer is pending, ask with get_job until it is not.",
            mcp_servers=[server],
            model=OpenAIChatCompletionsModel(os.environ["MODEL_NAME"], client),
        )
        result = await Runner.run(agent, question, max_turns=MOST_TURNS)
    return result.final_output


if __name__ == "__main__":
    sys.stdout.write(asyncio.run(run(sys.argv[1])) + "\n")
