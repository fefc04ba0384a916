"""Alerts at the terminal: what a person should look at, and closing it with a reason."""

from typing import Annotated
from uuid import UUID

import typer

from deedbox.cli.output import age, say, show_json, show_table
from deedbox.cli.session import AsOption, JsonOption, LimitOption, ask_password, person, reader, run
from deedbox.operate.alerts import AlertLine
from deedbox.wiring import Installation

alerts = typer.Typer(no_args_is_help=True, help="What a person should look at, until one closes it.")
DOOR = "cli"


@alerts.command("list")
def alerts_list(
    *,
    everything: Annotated[bool, typer.Option("--all", help="Closed ones as well.")] = False,
    limit: LimitOption = 100,
    as_json: JsonOption = False,
) -> None:
    """What is open, newest first, with cause, age and owner."""

    async def work(desk: Installation) -> list[AlertLine]:
        return await desk.alerts.listed(reader(desk.settings), is_open=None if everything else True, limit=min(limit, 500))

    found = run(work)
    if as_json:
        show_json(found)
        return
    rows = [
        [one.alert_id, one.cause, age(one.age_s), one.owner, one.job_id, one.message, *([one.closed_by] if everything else [])]
        for one in found
    ]
    columns = ["id", "cause", "age", "owner", "job", "what", *(["closed by"] if everything else [])]
    show_table(columns, rows, empty="nothing is open")


@alerts.command("close")
def alerts_close(
    alert: Annotated[UUID, typer.Argument(metavar="ID", help="The alert's id, from the list.")],
    who: AsOption,
    reason: Annotated[str, typer.Option(help="Why, in a sentence; it is kept.")],
    *,
    as_json: JsonOption = False,
) -> None:
    """Close an alert; its owner is told no more."""
    password = ask_password(who)

    async def work(desk: Installation) -> AlertLine:
        return await desk.alerts.close(await person(desk, who, password), alert, reason, door=DOOR)

    closed = run(work)
    if as_json:
        show_json(closed)
    else:
        say(f"closed: {closed.cause}")
