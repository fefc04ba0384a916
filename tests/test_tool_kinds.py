"""Each way in which a tool can be broken fails the kit: deliberately bad tools against a world that counts."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import pytest
from pydantic import BaseModel, Field

from deedbox.extend.connector import Ambiguous, EffectOrder, LookUp, Outcome, Receipt, Refused, Transient
from deedbox.extend.context import Context
from deedbox.extend.registry import App
from deedbox.model.backoff import Retry
from deedbox.model.policy import allow, hold
from deedbox.testing import ToolCase, ToolReport, check_tool, tool_bench
from deedbox.testing.tool_bench import Fault
from deedbox.wiring import Database
from tests.builders import AnyPayload
from tests.database import TestDatabase
from tests.guarantees import proves

pytestmark = pytest.mark.anyio


@dataclass
class World:
    """What was done, and how it breaks: a connector and the world behind it in one."""

    name: str = "world"
    fault: Fault = "none"
    done: list[str] = field(default_factory=list[str])
    lies: bool = False
    payload_model: type[BaseModel] = AnyPayload
    kind: Literal["record"] = "record"
    since: int = 0

    async def writes(self) -> Sequence[str]:
        """Everything that was done."""
        return list(self.done)

    async def play(self, fault: Fault) -> None:
        """Break."""
        self.fault, self.since = fault, len(self.done)

    def check_target(self, target: str) -> None:
        """Any."""

    def check_plan(self, target: str, payload: Any) -> None:
        """Any."""

    def describe(self, target: str, payload: Any) -> str:
        """A sentence."""
        return f"Writes {len(payload)} fields to {target}."

    def capability(self, target: str) -> Literal["searchable"]:  # noqa: ARG002 -- the protocol's signature
        """It can be asked."""
        return "searchable"

    async def send(self, order: EffectOrder) -> Outcome:
        """Do it, or break."""
        if self.fault == "busy" and not self.lies:
            return Transient("rate_limited", "http_429", "It asks to wait.", "answered", 0.5)
        if self.fault == "second_refused" and len(self.done) > self.since:
            return Refused("caller_error", "http_422", "No.", "answered")
        if order.effect_id not in self.done:
            self.done.append(order.effect_id)
        if self.fault in {"hang", "broken"} and not self.lies:
            return Ambiguous("http_500", "It answered 500.", "answered")
        return Receipt(order.effect_id)

    async def look_up(self, order: EffectOrder) -> LookUp:
        """Tell whether it was done, unless it breaks."""
        if self.fault in {"hang", "broken"}:
            return LookUp("still_unknown")
        return LookUp("accepted", order.effect_id) if order.effect_id in self.done else LookUp("not_accepted")


class Wish(BaseModel):
    """What is wanted."""

    name: str = Field(min_length=1, max_length=60)
    size: Literal["small", "large"]


class Loose(BaseModel):
    """The same, and anything will do."""

    name: str = Field(default="somebody", max_length=60)
    size: str = Field(default="small", max_length=60)


class Done(BaseModel):
    """What was planned."""

    name: str = Field(max_length=60)


def bad_app(how: str, world: World) -> App:
    """A tool with two effects in two groups that is broken in one way, or in none."""
    made = App(connectors=[world])  # pyright: ignore[reportArgumentType] -- a connector, as far as it is used here
    roles = ["operator", "admin"] if how == "wide_roles" else ["operator"]
    policy = allow() if how == "says_done" else hold()
    declared: dict[str, Any] = {
        "roles": roles,
        "approvers": ["manager"],
        "policy": policy,
        "tool": True,
        "retry": Retry(attempts=3, base="100ms", cap="1s"),
    }

    async def plan(ctx: Context, name: str) -> Done:
        if how == "acts_while_planning":
            world.done.append("behind the gate's back")
        if how == "says_done":
            return Done(name=name)
        ctx.effect("world", target="place", slot="first", payload={"name": name})
        ctx.effect("world", target="place", slot="second", payload={"name": name}, group="second", after="first")
        return Done(name=name)

    if how == "takes_anything":

        @made.action(**declared)
        async def make_thing(ctx: Context, wish: Loose) -> Done:  # pyright: ignore[reportRedeclaration, reportUnusedFunction]
            """Make a thing."""
            return await plan(ctx, wish.name)
    else:

        @made.action(**declared)
        async def make_thing(ctx: Context, wish: Wish) -> Done:  # pyright: ignore[reportUnusedFunction]
            """Make a thing."""
            return await plan(ctx, wish.name)

    return made


async def report_of(database: TestDatabase, how: str) -> ToolReport:
    """Run the kit on a tool that is broken in this way."""
    world = World(lies=how == "ignores_limits")
    place = Database(database.url, database.owner_url, direct=database.direct_url)
    case = ToolCase(
        "make_thing",
        lambda use: {"name": f"Ada {use}", "size": "small"},
        "operator",
        "admin",
        missing="name",
        enum="size",
        secret="name",
    )
    async with tool_bench(bad_app(how, world), world, database=place) as bench:
        return await check_tool(bench, case)


@proves("G-TOOL-KINDS")
@pytest.mark.parametrize(
    ("how", "fails"),
    [
        ("", set[str]()),
        ("acts_while_planning", {"happy"}),
        ("says_done", {"happy"}),
        ("takes_anything", {"missing_field", "wrong_enum"}),
        ("ignores_limits", {"rate_limited", "time_out", "server_error"}),
        ("wide_roles", {"permission"}),
    ],
)
async def test_a_broken_tool_fails_its_kind(database: TestDatabase, how: str, fails: set[str]) -> None:
    """A tool without a fault passes all eleven; one that is broken fails where it is broken."""
    report = await report_of(database, how)
    found = {check.name for check in report.checks if check.mark == "failed"}
    assert fails <= found if how == "acts_while_planning" else found == fails, report.text()
    assert report.passed == (not fails)
