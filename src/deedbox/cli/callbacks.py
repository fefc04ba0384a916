"""Callbacks at the terminal: what receivers were told, telling it again, and letting one hear again that had enough."""

from datetime import datetime
from typing import Annotated
from uuid import UUID

import typer

from deedbox.cli.output import CommandError, Exit, say, show_json, show_table
from deedbox.cli.session import AsOption, JsonOption, ask_password, person, reader, run
from deedbox.operate.callbacks import FIRST, Disabled, Line
from deedbox.wiring import Installation

callbacks = typer.Typer(no_args_is_help=True, help="Who is told what becomes of jobs.")

TargetOption = Annotated[str | None, typer.Option(metavar="RECEIVER", help="Only this receiver.")]
SinceOption = Annotated[str | None, typer.Option(metavar="TIME", help="Since this moment, such as 2027-03-01T09:00:00Z.")]
JobOption = Annotated[str | None, typer.Option(metavar="JOB", help="Of this job.")]
DOOR = "cli"


@callbacks.command("list")
def callbacks_list(
    since: SinceOption = None,
    job: JobOption = None,
    target: TargetOption = None,
    state: Annotated[str | None, typer.Option(help="Only those in this state, such as failed.")] = None,
    *,
    as_json: JsonOption = False,
) -> None:
    """What receivers were told, or are to be, oldest first."""
    moment, job_id = _moment(since), _job(job)

    async def work(desk: Installation) -> list[Line]:
        found: list[Line] = []
        after: UUID | None = FIRST
        while after is not None:
            page = await desk.callbacks.listed(
                reader(desk.settings), since=moment, job_id=job_id, target=target, state=state, after=after, limit=1000
            )
            found += page.callbacks
            after = page.cursor
        return found

    lines = run(work)
    if as_json:
        show_json(lines)
        return
    show_table(
        ["made", "receiver", "event", "type", "job", "state", "tries", "why"],
        [
            [one.made_at, one.target, one.event_id, one.type, one.job_id, one.state, one.attempts, one.message or ""]
            for one in lines
        ],
        empty="nobody was told anything",
    )


@callbacks.command("replay")
def callbacks_replay(who: AsOption, since: SinceOption = None, job: JobOption = None, target: TargetOption = None) -> None:
    """Tell again what was told since a moment, or of a job: the same events under the same ids."""
    moment, job_id = _moment(since), _job(job)
    if moment is None and job_id is None:
        raise CommandError("say --since when, or of which --job", Exit.USAGE)
    password = ask_password(who)

    async def work(desk: Installation) -> int:
        principal = await person(desk, who, password)
        count = 0
        after: UUID | None = FIRST
        while after is not None:
            done = await desk.callbacks.replay(principal, since=moment, job_id=job_id, target=target, after=after, door=DOOR)
            count += done.replayed
            after = done.cursor
        return count

    say(f"told again: {run(work)}")


@callbacks.command("disabled")
def callbacks_disabled(*, as_json: JsonOption = False) -> None:
    """Receivers that answered 410 and are told nothing more."""

    async def work(desk: Installation) -> list[Disabled]:
        return await desk.callbacks.disabled(reader(desk.settings))

    found = run(work)
    if as_json:
        show_json(found)
        return
    show_table(
        ["receiver", "since", "why"], [[one.target, one.disabled_at, one.reason] for one in found], empty="none is disabled"
    )


@callbacks.command("enable")
def callbacks_enable(
    target: Annotated[str, typer.Argument(metavar="RECEIVER", help="Its name in the settings.")],
    who: AsOption,
    reason: Annotated[str, typer.Option(help="Why, in a sentence; it is kept.")],
) -> None:
    """Tell a receiver again that had answered 410; `replay` tells what it missed."""
    password = ask_password(who)

    async def work(desk: Installation) -> None:
        await desk.callbacks.enable(await person(desk, who, password), target, reason, door=DOOR)

    run(work)
    say(f"{target} is told again")


def _moment(text: str | None) -> datetime | None:
    if text is None:
        return None
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        found = None
    if found is None or found.tzinfo is None:
        raise CommandError("a moment has its zone, as in 2027-03-01T09:00:00Z", Exit.USAGE)
    return found


def _job(text: str | None) -> UUID | None:
    try:
        return None if text is None else UUID(text)
    except ValueError:
        raise CommandError(f"{text}: is not the id of a job", Exit.USAGE) from None
