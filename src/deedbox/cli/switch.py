"""The switch at the terminal: off in one word, on only by a person who says why."""

import getpass
from dataclasses import replace
from typing import Annotated, Any

import typer
from rich.text import Text

from deedbox.cli.output import console, say, show_json, show_pairs, show_table, when
from deedbox.cli.session import AsOption, JsonOption, ask_password, person, reader, run
from deedbox.wiring import Installation

switch = typer.Typer(no_args_is_help=True, help="What may leave the house: nothing, unless both halves are on.")

DOOR = "cli"


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
            [*(line[name] or "any" for name in columns), "on" if line["is_on"] else "off", line["by"], line["why"]]
            for line in narrowed
        ]
        show_table([*columns, "switch", "by", "why"], rows, empty="")


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
    *,
    as_json: JsonOption = False,
) -> None:
    """Turn the database's half on, as a person whose role may."""
    password = ask_password(who)

    async def work(desk: Installation) -> dict[str, Any]:
        return await desk.verbs.set_switch(await person(desk, who, password), True, reason, DOOR, owner=owner or None)

    state = run(work)
    _show(state, as_json=as_json)
    if not as_json and not state["environment"]:
        say("The environment's half is off here: each dispatcher needs AI_ACTIONS_ENABLED=true.")


@switch.command("off")
def switch_off(
    reason: Annotated[str, typer.Option(help="Why, in a sentence; it is kept.")] = "turned off at the terminal",
    *,
    as_json: JsonOption = False,
) -> None:
    """Turn the database's half off, at once and without a login. What is on the wire is counted and shown."""

    async def work(desk: Installation) -> dict[str, Any]:
        # Whoever can run this could stop the processes as well; an emergency does not wait for a password.
        name = f"terminal:{getpass.getuser()}"
        one = replace(reader(desk.settings), name=name, kind="service", roles=frozenset({"operator"}))
        return await desk.verbs.set_switch(one, False, reason, DOOR)

    state = run(work)
    _show(state, as_json=as_json)
