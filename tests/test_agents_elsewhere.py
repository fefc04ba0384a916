"""Agents of three toolkits act through a real Deedbox, each example as its own program, with a stand-in for the model."""

import os
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.database import TestDatabase
from tests.guarantees import proves
from tests.servers.commands import ROOT
from tests.servers.fleet import Fleet, fleet
from tests.servers.tool_model import ToolModel
from tests.test_mcp_clients import run
from tools.agents import AGENTS, MISSING

pytestmark = pytest.mark.anyio
needs_agents = pytest.mark.skipif(not AGENTS.is_current(), reason=MISSING)
EXAMPLES: dict[str, tuple[str, bool]] = {
    "with_pydantic_ai": (sys.executable, False),
    "with_langgraph": (str(AGENTS.python), False),
    "with_openai_agents": (str(AGENTS.python), True),
}
"""Each with the interpreter that runs it, and whether it comes over MCP."""
each_example = pytest.mark.parametrize(
    "name",
    ["with_pydantic_ai", *(pytest.param(name, marks=needs_agents) for name in ("with_langgraph", "with_openai_agents"))],
)
# No network but loopback: whatever a toolkit would send elsewhere goes to a port where nobody is.
NOWHERE = dict.fromkeys(("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"), "http://127.0.0.1:9")


async def ask(ships: Fleet, name: str, url: str, model: ToolModel, question: str, more: Sequence[str] = ()) -> str:
    """Run an example to its end."""
    python, _ = EXAMPLES[name]
    told = {
        "DEEDBOX_URL": url,
        "DEEDBOX_KEY": ships.key,
        "MODEL_URL": model.url,
        "MODEL_NAME": "stand-in",
        "PYTHONPATH": os.pathsep.join([str(ROOT), *more]),
        "NO_PROXY": "127.0.0.1",
    }
    return await run([python, "-m", f"examples.agents.{name}", question], told | NOWHERE)


@proves("G-AGENTS")
@each_example
async def test_an_agent_of_another_toolkit_packs_an_order_once(database: TestDatabase, tmp_path: Path, name: str):
    async with fleet(database, tmp_path, "examples.agents.desk:app") as ships:
        url = f"http://127.0.0.1:{(await ships.server()).port}"
        await ships.worker()
        with ToolModel("pack_order", {"order_id": "A-100"}, doubles=True) as model:
            said = await ask(ships, name, url, model, "Pack order A-100.")
        assert "parcel of two blue mugs" in said, said
        over_mcp = EXAMPLES[name][1]
        assert model.offered == (
            ["cancel_job", "find_order", "get_job", "pack_order"] if over_mcp else ["find_order", "pack_order"]
        )
        # The model called twice in one turn, and asked again while it was pending: one job.
        assert await ships.stored() == 1
        assert await database.rows("SELECT state FROM deedbox.result") == [("completed",)]
        assert ships.key not in str(model.seen)


@proves("G-AGENTS")
@each_example
async def test_an_agent_is_told_what_went_wrong_in_words(database: TestDatabase, tmp_path: Path, name: str):
    async with fleet(database, tmp_path, "examples.agents.desk:app") as ships:
        url = f"http://127.0.0.1:{(await ships.server()).port}"
        await ships.worker()
        with ToolModel("find_order", {"order_id": "A-999"}) as model:
            said = await ask(ships, name, url, model, "Where is order A-999?")
        assert "ORDER_NOT_FOUND" in said, said
        assert await ships.stored() == 1
