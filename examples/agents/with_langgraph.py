"""An agent of LangGraph that acts through Deedbox over HTTP: `python -m examples.agents.with_langgraph "Pack order A-100."`.

From the environment: DEEDBOX_URL and DEEDBOX_KEY; MODEL_URL (any OpenAI-compatible endpoint), MODEL_NAME and MODEL_KEY.
"""
# pyright: basic, reportMissingImports=false
# LangGraph is in an environment of its own, so that nothing of it comes into Deedbox's.

import asyncio
import os
import sys
from typing import Any
from uuid import uuid4

# Its tracing would send what the agent did to its maker; nothing leaves but what is meant to.
os.environ["LANGSMITH_TRACING"] = "false"

from langchain_core.tools import StructuredTool
from langchain_openai import ChatOpenAI
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition

from examples.agents.toolset import DeedboxTools, Tool

MOST_STEPS = 16


def offered(deedbox: DeedboxTools, tool: Tool) -> StructuredTool:
    """A tool as the graph calls it."""

    async def call(**arguments: Any) -> dict[str, Any]:
        return await deedbox.call(tool.name, arguments)

    return StructuredTool(name=tool.name, description=tool.description, args_schema=tool.schema, coroutine=call)


async def run(question: str) -> str:
    """Answer a question with what Deedbox can do."""
    model = ChatOpenAI(
        base_url=os.environ["MODEL_URL"],
        model=os.environ["MODEL_NAME"],
        api_key=os.environ.get("MODEL_KEY", "none"),
        max_retries=0,
    )
    async with DeedboxTools(os.environ["DEEDBOX_URL"], os.environ["DEEDBOX_KEY"], run=uuid4().hex) as deedbox:
        tools = [offered(deedbox, one) for one in await deedbox.tools()]
        knowing = model.bind_tools(tools)

        async def think(state: MessagesState) -> dict[str, Any]:
            return {"messages": [await knowing.ainvoke(state["messages"])]}

        graph = StateGraph(MessagesState)
        graph.add_node("think", think)
        graph.add_node("tools", ToolNode(tools))
        graph.add_edge(START, "think")
        graph.add_conditional_edges("think", tools_condition)
        graph.add_edge("tools", "think")
        result = await graph.compile().ainvoke({"messages": [("user", question)]}, {"recursion_limit": MOST_STEPS})
    return result["messages"][-1].content


if __name__ == "__main__":
    sys.stdout.write(asyncio.run(run(sys.argv[1])) + "\n")
