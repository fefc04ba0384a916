"""The official conformance suite against our face: both revisions and the tasks, on one replica and on two in turn."""

import asyncio
import json
import re
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from tests.conformance_app.serve import replicas
from tests.database import TestDatabase
from tests.guarantees import proves
from tools import node

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(not node.is_current(), reason=node.MISSING),
]
HERE = Path(__file__).parent / "conformance_app"
BASELINE: dict[str, dict[str, str]] = yaml.safe_load((HERE / "baseline.yaml").read_text(encoding="utf-8"))
SUMMARY = HERE / "summary.json"
_LINE = re.compile(r"^([✓✗]) ([a-z0-9-]+): (\d+) passed, (\d+) failed", re.MULTILINE)
REVISIONS = ("2026-07-28", "2025-11-25")
WITHIN_S = 480.0


@dataclass(frozen=True)
class Scenario:
    """What came of a scenario."""

    passed: int
    failed: int


async def run(url: str, revision: str) -> dict[str, Scenario]:
    """Run what a revision requires, and what the suite runs beside it, against a server."""
    command = [*node.program("conformance"), "server", "--url", url, "--requirements", revision]
    process = await asyncio.create_subprocess_exec(
        *command, env={**node.environment(), "NO_COLOR": "1"}, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    try:
        said, _ = await asyncio.wait_for(process.communicate(), WITHIN_S)
    finally:
        if process.returncode is None:
            process.kill()
    text = re.sub(r"\x1b\[[0-9;]*m", "", said.decode())
    found = {name: Scenario(int(passed), int(failed)) for _, name, passed, failed in _LINE.findall(text)}
    assert found, text[-3000:]
    return found


@proves("G-MCP-ERAS", "G-MCP-TASKS")
@pytest.mark.parametrize("many", [1, 2], ids=["one replica", "two replicas in turn"])
@pytest.mark.parametrize("revision", REVISIONS)
async def test_every_scenario_passes_but_those_that_the_baseline_names(database: TestDatabase, revision: str, many: int):
    async with replicas(database, many) as url:
        found = await run(url, revision)
    failing = {name for name, scenario in found.items() if scenario.failed}
    idle = {name for name, scenario in found.items() if not scenario.passed and not scenario.failed}
    assert failing == set(BASELINE["failing"].get(revision) or ()), found
    assert idle == set(BASELINE["skipped by the suite"].get(revision) or ()), found
    wanted = json.loads(SUMMARY.read_text(encoding="utf-8"))[revision]
    assert {name: scenario.passed for name, scenario in found.items()} == wanted, (
        "python -m tests.conformance_app writes it anew"
    )
