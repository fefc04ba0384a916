"""A whole installation in one process for tests of tools: real worker, real dispatcher, real database, people and programs.

async with tool_bench(app, outside, settings={"targets": [...], "egress_allow": {...}}) as bench:
    report = await check_tool(bench, ToolCase("create_lead", {...}, role="operator", wrong_role="viewer"))
print(report.text())
assert report.passed
"""

import asyncio
import tempfile
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol
from uuid import UUID

from deedbox import embedded
from deedbox.access import add_key, add_user, resolve_key
from deedbox.extend.registry import App
from deedbox.model.identity import Principal
from deedbox.operate.tools import Envelope, ToolCall, Tools
from deedbox.settings import Settings
from deedbox.wiring import ALL_ROLES, Database, Installation, find_database, migrate_database, opened, run_roles

Fault = Literal["none", "hang", "busy", "broken", "half", "second_refused"]
TENANT = "default"


class Outside(Protocol):
    """What tests ask of the world outside: everything that was ever done there, and to break until it is told otherwise.

    `hang`: it does what it is asked and does not answer; whoever hangs is let go by the next fault. `busy`: it does nothing and
    asks to wait (429). `broken`: it does what it is asked and answers 500. `half`: its answers to questions lack their parts.
    `second_refused`: the next write is done, and those after it are refused for good.
    """

    async def writes(self) -> Sequence[str]:
        """The ids of everything that was ever done, each as often as it was done."""
        ...

    async def play(self, fault: Fault) -> None:
        """Break in this way from now on; `none` heals."""
        ...


@dataclass
class ToolBench:
    """A running installation, and who calls and decides in it."""

    installation: Installation
    outside: Outside
    approver: Principal
    _callers: dict[str, Principal] = field(default_factory=dict[str, Principal])

    @property
    def tools(self) -> Tools:
        """The tools of the installation."""
        return self.installation.tools

    @property
    def app(self) -> App:
        """The application under test."""
        return self.installation.app

    async def caller(self, role: str) -> Principal:
        """A program with one role, made when it is first asked for."""
        known = self._callers.get(role)
        if known is None:
            desk = self.installation
            bearer = await add_key(desk.pool, desk.ids, TENANT, f"caller-{role}", [role], "tests of tools")
            known = await resolve_key(desk.pool, bearer)
            if known is None:
                raise RuntimeError("the key that was made just now opens nothing")
            self._callers[role] = known
        return known

    async def call(self, role: str, tool: str, arguments: object, *, key: str | None = None, wait_s: float = 5.0) -> Envelope:
        """Call a tool as a program with this role."""
        call = ToolCall(tool, arguments, key=key, wait_s=wait_s)
        return await self.tools.call(await self.caller(role), call)

    async def outcome(self, role: str, job_id: str, *, wait_s: float = 0.0) -> Envelope:
        """The answer for a job that this program started."""
        return await self.tools.outcome(await self.caller(role), job_id, wait_s=wait_s)

    async def decide(self, approval_id: str, decision: Literal["approve", "reject"]) -> None:
        """Decide as a person with the role of the approver, on exactly what the card shows."""
        approvals = self.installation.approvals
        card = await approvals.card(TENANT, UUID(approval_id), self.approver)
        if card is None:
            raise RuntimeError("the approver is not shown what waits for a person: give the bench the right role")
        reason = "not this one" if decision == "reject" else None
        await approvals.decide(self.approver, UUID(approval_id), card.digest_hex, decision, reason, "tests of tools")

    async def switch(self, *, on: bool) -> None:
        """Turn the database's half of the switch."""
        await self.installation.verbs.set_switch(self.approver, on, "tests of tools", "terminal")


@asynccontextmanager
async def tool_bench(
    app: App,
    outside: Outside,
    *,
    settings: Mapping[str, Any] | None = None,
    database: Database | None = None,
    approver_role: str = "manager",
) -> AsyncGenerator[ToolBench]:
    """Run an installation of the app: on `database`, else on an embedded PostgreSQL of its own that goes with it.

    `settings` are those of deedbox.settings, by the names of their fields; what tests need quick is quick unless they say
    otherwise. `approver_role` is the role of the person who decides. Raises StartError as the command line does.
    """
    with tempfile.TemporaryDirectory(prefix="deedbox-tools-") as place:
        quick: dict[str, Any] = {
            "state": Path(place),
            "AI_ACTIONS_ENABLED": True,
            "look_up_first_s": 0.2,
            "send_lease_s": 3.0,
            "breaker_failures": 0,
            "pool_size": 4,
            "drain_s": 1.0,
        }
        chosen = Settings(**{**quick, **(settings or {})})
        where = database or find_database(chosen)
        try:
            if database is None:
                await migrate_database(where)
            async with opened(chosen, app, where, roles=ALL_ROLES) as installation:
                bench = await _bench(installation, outside, approver_role)
                stop = asyncio.Event()
                loops = asyncio.create_task(run_roles(installation, ("worker", "dispatch", "sweep"), stop))
                try:
                    yield bench
                finally:
                    await outside.play("none")
                    stop.set()
                    await loops
        finally:
            if where.running is not None:
                where.running.stop()
                embedded.remove(Path(place))


async def _bench(installation: Installation, outside: Outside, approver_role: str) -> ToolBench:
    name = "approver of tests"
    person = await add_user(
        installation.pool, installation.ids, TENANT, name, [approver_role], f"a password of tests {installation.name}"
    )
    approver = Principal(person, TENANT, name, "person", frozenset({approver_role}), "session", authenticated_s_ago=0.0)
    bench = ToolBench(installation, outside, approver)
    await bench.switch(on=True)
    return bench
