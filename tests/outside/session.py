"""A terminal session with the Inspector against real processes, as it stands in docs/agents.md.

tests/test_mcp_session.py runs it and compares, or puts it there (tests/pasted.py). What differs from run to run
(ids, process numbers, ports) is written in one way.
"""

import asyncio
import os
import re
import sys
from pathlib import Path

from tests.servers.fleet import Fleet
from tools import node

_ID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}")
WITHIN_S = 120.0

PRELUDE = """
inspector() { mcp-inspector --cli "$URL" --transport http --header "Authorization: Bearer $DEEDBOX_KEY" "$@"; }
names() { python3 -c 'import json, sys; print(*(one["name"] for one in json.load(sys.stdin)["tools"]))'; }
show() { python3 -c 'import json, sys
told = json.load(sys.stdin)["structuredContent"]
told |= told.pop("data") or {}
print(*(f"{name}: {json.dumps(told[name])}" for name in sys.argv[1:]), sep="\\n")' "$@"; }
"""
# The gate is a file for which the tool waits; it stands for whatever takes long.
LEGACY = "inspector --protocol-era legacy --method "
COMMANDS: tuple[tuple[str, bool], ...] = (
    (LEGACY + "tools/list | names", False),
    (LEGACY + "tools/call --tool-name watch_gate --tool-arg gate=$GATE | show status job_id", True),
    (LEGACY + "tools/call --tool-name get_job --tool-arg job_id=$JOB | show human_message progress partial next_after", False),
    ("touch $GATE", False),
    (LEGACY + "tools/call --tool-name get_job --tool-arg job_id=$JOB wait_s=20 | show status human_message result", False),
    (LEGACY.replace("legacy", "modern") + "tools/call --tool-name note_thing --tool-arg text=hello | show status text", False),
)
"""Each with whether it starts the job that the next ones ask for."""


async def session(ships: Fleet, port: int) -> str:
    """Everything that was typed, and what was answered."""
    gate = ships.gate()
    environment = {
        **node.environment(),
        "URL": f"http://127.0.0.1:{port}/mcp",
        "DEEDBOX_KEY": ships.key,
        "GATE": str(gate),
    }
    environment["PATH"] = os.pathsep.join([str(node.MODULES / ".bin"), str(Path(sys.executable).parent), environment["PATH"]])
    typed: list[str] = [f"{'$' if '() {' in line else '>'} {line}" for line in PRELUDE.strip().splitlines()]
    for command, starts in COMMANDS:
        said = await _run(command, environment)
        if starts:
            found = re.search(r'job_id: "([0-9a-f-]{36})"', said)
            assert found is not None, said
            environment["JOB"] = found[1]
            await ships.holder(gate)
        typed += [f"$ {command}", *([said.rstrip()] if said.strip() else [])]
    return plainly("\n".join(typed))


def plainly(text: str) -> str:
    """The same without what differs from run to run."""
    seen: dict[str, str] = {}
    for one in _ID.findall(text):
        seen.setdefault(one, f"0197f2a8-0000-7000-8000-{len(seen) + 1:012d}")
        text = text.replace(one, seen[one])
    text = re.sub(r"pid [0-9]+", "pid 4711", text)
    text = re.sub(r'"pid": [0-9]+', '"pid": 4711', text)
    text = re.sub(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:.]+(?:Z|\+00:00)", "2026-11-30T12:00:00Z", text)
    text = re.sub(r"http://127\.0\.0\.1:[0-9]+", "http://127.0.0.1:8484", text)
    return re.sub(r"[ \t]+\n", "\n", text)


async def _run(command: str, environment: dict[str, str]) -> str:
    process = await asyncio.create_subprocess_exec(
        "bash",
        "-c",
        f"set -e -o pipefail\n{PRELUDE}\n{command}",
        env=environment,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await asyncio.wait_for(process.communicate(), WITHIN_S)
    assert process.returncode == 0, (command, out.decode(), err.decode())
    return out.decode()
