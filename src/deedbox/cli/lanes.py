"""Lanes at the terminal: what waits and runs in each, paused, let go on, limited."""

from typing import Annotated

import typer

from deedbox.cli.output import CommandError, Exit, say, show_json, show_table
from deedbox.cli.session import AsOption, JsonOption, ask_password, person, reader, run
from deedbox.operate.lanes import MOST_RUNNING, Lane
from deedbox.wiring import Installation

lanes = typer.Typer(no_args_is_help=True, help="Queues of one action and tenant: what waits, what runs, and how much may.")

LaneArgument = Annotated[int, typer.Argument(metavar="LANE", help="The lane's number, from the list.")]
MostArgument = Annotated[str, typer.Argument(metavar="MOST", help="How many may run at once, or `none`.")]
ReasonOption = Annotated[str, typer.Option(help="Why, in a sentence; it is kept.")]
DOOR = "cli"


@lanes.command("list")
def lanes_list(
    action: Annotated[str | None, typer.Option(help="Only the lanes of this action.")] = None, *, as_json: JsonOption = False
) -> None:
    """Every lane with what waits and runs in it."""

    async def work(desk: Installation) -> list[Lane]:
        return await desk.lanes.listed(reader(desk.settings), action)

    found = run(work)
    if as_json:
        show_json(found)
        return
    show_table(
        ["lane", "queue", "action", "waiting", "running", "limit", "of action", "paused"],
        [
            [
                one.lane_id,
                one.queue,
                one.action,
                one.waiting,
                one.running,
                "none" if one.max_running is None else one.max_running,
                "none" if one.action_max_running is None else one.action_max_running,
                "yes" if one.paused else "no",
            ]
            for one in found
        ],
        empty="no lanes yet: an action gets one with its first job",
    )


@lanes.command("pause")
def lanes_pause(lane: LaneArgument, who: AsOption, reason: ReasonOption) -> None:
    """Start nothing more of a lane; what runs goes on."""
    _change(lane, who, reason, paused=True)
    say("paused")


@lanes.command("resume")
def lanes_resume(lane: LaneArgument, who: AsOption, reason: ReasonOption) -> None:
    """Let a paused lane go on."""
    _change(lane, who, reason, paused=False)
    say("goes on")


@lanes.command("limit")
def lanes_limit(lane: LaneArgument, most: MostArgument, who: AsOption, reason: ReasonOption) -> None:
    """Limit how many jobs of a lane run at once, over all workers."""
    limit = _limit(most)
    _change(lane, who, reason, limit=limit)
    say("no limit" if limit < 0 else f"at most {limit} at once")


@lanes.command("limit-action")
def lanes_limit_action(
    action: Annotated[str, typer.Argument(metavar="ACTION", help="The action's name.")],
    most: MostArgument,
    who: AsOption,
    reason: ReasonOption,
) -> None:
    """Limit how many jobs of an action run at once, over all workers, queues and tenants."""
    limit = _limit(most)
    password = ask_password(who)

    async def work(desk: Installation) -> list[Lane]:
        return await desk.lanes.limit_action(await person(desk, who, password), action, limit, reason, door=DOOR)

    run(work)
    say(f"no limit over all lanes of {action}" if limit < 0 else f"at most {limit} at once over all lanes of {action}")


def _limit(most: str) -> int:
    if most != "none" and not (most.isascii() and most.isdecimal() and len(most) <= len(str(MOST_RUNNING))):
        raise CommandError("MOST is a number or `none`", Exit.USAGE)
    return -1 if most == "none" else int(most)


def _change(lane: int, who: str, reason: str, *, paused: bool | None = None, limit: int | None = None) -> None:
    password = ask_password(who)

    async def work(desk: Installation) -> Lane:
        principal = await person(desk, who, password)
        return await desk.lanes.change(principal, lane, reason, paused=paused, limit=limit, door=DOOR)

    run(work)
