"""Approvals at the terminal: what waits for a person, and the link to the page where it is decided."""

from typing import Annotated
from uuid import UUID

import typer

from deedbox.cli.output import CommandError, Exit, age, show_json, show_table
from deedbox.cli.session import JsonOption, reader, run
from deedbox.operate.cards import ApprovalLine
from deedbox.wiring import Installation

approvals = typer.Typer(no_args_is_help=True, help="What waits for a person. Deciding happens on the page or by the API.")


@approvals.command("list")
def approvals_list(*, as_json: JsonOption = False) -> None:
    """The open approvals, the nearest deadline first."""

    async def work(desk: Installation) -> list[ApprovalLine]:
        return await desk.approvals.inbox(desk.settings.tenant, reader(desk.settings))

    lines = run(work)
    if as_json:
        show_json(lines)
        return
    show_table(
        ["id", "action", "asked by", "time left", "who decides", "what will happen"],
        [
            [line.approval_id, line.action, line.asked_by, age(line.remaining_s), line.audience, "; ".join(line.sentences)]
            for line in lines
        ],
        empty="nothing waits for a person",
    )


@approvals.command("link")
def approvals_link(approval_id: Annotated[UUID, typer.Argument(metavar="ID", help="The approval's id.")]) -> None:
    """Print a fresh link to the page: it shows who asks and leads to the login; it decides nothing by itself."""

    async def work(desk: Installation) -> str | None:
        card = await desk.approvals.card(desk.settings.tenant, approval_id, reader(desk.settings))
        return None if card is None else await desk.approvals.link(approval_id)

    link = run(work)
    if link is None:
        raise CommandError("there is no open approval with this id", Exit.NOT_THERE)
    print(link)
