"""The example that hands drafting over, as one command runs it: real processes, both ways, each line really seen."""

import asyncio
import os
import sys
from pathlib import Path

import pytest

from tests.guarantees import proves

pytestmark = pytest.mark.anyio
ROOT = Path(__file__).resolve().parent.parent


@proves("G-HANDOFF")
async def test_drafting_is_handed_over_and_everything_else_stays_here() -> None:
    place = os.pathsep.join([str(ROOT), str(ROOT / "src")])
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "examples.hermes_handoff",
        env={**os.environ, "PYTHONPATH": place},
        cwd=ROOT,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    out, _ = await asyncio.wait_for(process.communicate(), 400)
    lines = out.decode().splitlines()
    assert process.returncode == 0, out.decode()
    assert len(lines) == 10
    assert all(line.startswith("seen") for line in lines)
