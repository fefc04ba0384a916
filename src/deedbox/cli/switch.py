"""The switch at the terminal: off in one word, on only by a person who says why."""

import asyncio
import getpass
import time
from dataclasses import replace
from typing import Annotated, Any

import typer
from rich.text import Text

from deedbox.cli.output import CommandError, Exit, console, say, show_json, show_pairs, show_table, when
from deedbox.cli.session import AsOption, JsonOption, ask_password, person, reader, run
from deedbox.operate.switch_trial import Trial
from deedbox.operate.verbs import Narrow
from deedbox.wiring import Installation

switch = typer.Typer(no_args_is_help=True, help="What may leave the house: nothing, unless both halves are on.")

TenantOption = Annotated[str | None, typer.Option(help="Only this tenant's acts.")]
ActionOption = Annotated[str | None, typer.Option(help="Only acts of this action.")]
ConnectorOption = Annotated[str | None, typer.Option(help="Only acts of this connector.")]
TargetOption = Annotated[str | None, typer.Option(help="Only acts at this target.")]
DOOR = "cli"
_LOOK_AGAIN_S = 0.2
_STYLE = {True: "green", False: "red"}


def halves(state: dict[str, Any]) -> tuple[str, str, str]:
    """In words: whether acts leave, the environment's half of this process, and the database's half."""
    environment = "on" if state["environment"] else "off (AI_ACTIONS_ENABLED is not exactly true)"
    by = f"{state['by']}, {when(state['when'])}: {state['why']}" if state["by"] else "there is no switch row"
    database = f"{'on' if state['is_on'] else 'off'} ({by})"
    return "on" if state["open"] else "off", environment, database


def _show(state: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        show_json(state)
        return
    leaves, environment, database = halves(state)
    processes: dict[str, bool] = state["environment_by_process"]
    show_pairs(
        [
            ("acts leave", Text("yes", style="green") if leaves == "on" else Text("no", style="red")),
            ("environment here", environment),
            ("database", database),
            ("owner", state["owner"] or "nobody is named"),
            ("last tested", _tested(state)),
            ("on the wire", state["in_flight"]),
            ("notices", "on" if state["notices_on"] else "off"),
        ]
    )
    console().print()
    show_table(
        ["dispatching process", "environment"],
        [[name, "on" if is_on else "off"] for name, is_on in processes.items()],
        empty="no dispatcher runs",
    )
    narrowed: list[dict[str, Any]] = state["narrowed"]
    if narrowed:
        columns = ["tenant", "action", "connector", "target"]
        rows = [
            [
                *(line[name] or "any" for name in columns),
                "on" if line["is_on"] else "off",
                line["by"],
                when(line["when"]),
                line["why"],
                line["in_flight"],
            ]
            for line in narrowed
        ]
        show_table([*columns, "switch", "by", "when", "why", "on the wire"], rows, empty="")


def _tested(state: dict[str, Any]) -> str:
    return f"{when(state['tested_at'])} by {state['tested_by']}" if state["tested_at"] else "never: deedbox switch test"


def _part(tenant: str | None, action: str | None, connector: str | None, target: str | None) -> Narrow | None:
    """The part of all acts that the options name; None for all."""
    part = Narrow(tenant or None, action or None, connector or None, target or None)
    return None if part == Narrow() else part


@switch.command("show")
def switch_show(*, as_json: JsonOption = False) -> None:
    """Both halves, who turned it, when and why, and what is on the wire."""

    async def work(desk: Installation) -> dict[str, Any]:
        return await desk.verbs.switch_state(desk.settings.tenant)

    _show(run(work), as_json=as_json)


@switch.command("on")
def switch_on(
    who: AsOption,
    reason: Annotated[str, typer.Option(help="Why, in a sentence; it is kept.")],
    owner: Annotated[str | None, typer.Option(help="Who answers for the switch from now on.")] = None,
    tenant: TenantOption = None,
    action: ActionOption = None,
    connector: ConnectorOption = None,
    target: TargetOption = None,
    *,
    as_json: JsonOption = False,
) -> None:
    """Turn the database's half on, or the part that is named, as a person whose role may."""
    part = _part(tenant, action, connector, target)
    if part is not None and owner:
        raise CommandError("--owner: is for the whole switch, and a part of it is named", Exit.USAGE)
    password = ask_password(who)

    async def work(desk: Installation) -> dict[str, Any]:
        one = await person(desk, who, password)
        return await desk.verbs.set_switch(one, True, reason, DOOR, narrow=part, owner=owner or None)

    state = run(work)
    _show(state, as_json=as_json)
    if not as_json and not state["environment"]:
        say("The environment's half is off here: each dispatcher needs AI_ACTIONS_ENABLED=true.")


@switch.command("off")
def switch_off(
    reason: Annotated[str, typer.Option(help="Why, in a sentence; it is kept.")] = "turned off at the terminal",
    tenant: TenantOption = None,
    action: ActionOption = None,
    connector: ConnectorOption = None,
    target: TargetOption = None,
    *,
    wait: Annotated[bool, typer.Option("--wait", help="Return once nothing of it is on the wire any more.")] = False,
    within: Annotated[float, typer.Option(help="Longest wait, in seconds.", min=0, max=86400)] = 120.0,
    as_json: JsonOption = False,
) -> None:
    """Turn the database's half off, or the part that is named, at once and without a login. What is on the wire is counted."""
    part = _part(tenant, action, connector, target)

    async def work(desk: Installation) -> tuple[dict[str, Any], int]:
        # Whoever can run this could stop the processes as well; an emergency does not wait for a password.
        name = f"terminal:{getpass.getuser()}"
        one = replace(reader(desk.settings), name=name, kind="service", roles=frozenset({"operator"}))
        await desk.verbs.set_switch(one, False, reason, DOOR, narrow=part)
        left = await _landed(desk, part, within) if wait else 0
        return await desk.verbs.switch_state(desk.settings.tenant), left

    state, left = run(work)
    _show(state, as_json=as_json)
    if left:
        raise CommandError(f"it is off, and {left} that had begun are still on the wire after {within:g} s", Exit.REFUSED)


async def _landed(desk: Installation, part: Narrow | None, within_s: float) -> int:
    """Wait until nothing of a part is on the wire, or for so long; returns how many are left."""
    until = time.monotonic() + within_s
    while (left := await desk.verbs.in_flight(part)) and time.monotonic() < until:  # noqa: ASYNC110 -- each round is a question to PostgreSQL
        await asyncio.sleep(_LOOK_AGAIN_S)
    return left


@switch.command("test")
def switch_test(who: AsOption, *, as_json: JsonOption = False) -> None:
    """Show that nothing is leased while any part of it is off. Nothing is sent, and nothing stays turned."""
    password = ask_password(who)

    async def work(desk: Installation) -> list[Trial]:
        return await desk.verbs.test_switch(await person(desk, who, password), door=DOOR)

    trials = run(work)
    if as_json:
        show_json({"passed": all(one.passed for one in trials), "trials": trials})
    else:
        rows = [
            [one.off, "kept back" if one.blocked else "found", Text("ok" if one.passed else "WRONG", style=_STYLE[one.passed])]
            for one in trials
        ]
        show_table(["off", "a planted effect was", ""], rows, empty="")
    if not all(one.passed for one in trials):
        raise CommandError("the switch does not do what it must: stop the dispatchers and report this", Exit.REFUSED)
