"""What is put right about jobs at the terminal: an ended one replaced by a correction, and those about a person erased."""

import json
from pathlib import Path
from typing import Annotated, Any, cast
from uuid import UUID

import typer

from deedbox.cli.output import CommandError, Exit, say, show_json
from deedbox.cli.session import AsOption, JsonOption, ask_password, person, run
from deedbox.intake.request import Accepted
from deedbox.operate.erasure import Erased, Erasure
from deedbox.wiring import Installation

DOOR = "cli"
ReasonOption = Annotated[str, typer.Option(help="Why, in a sentence; it is kept.")]


def add_corrections(group: typer.Typer) -> None:
    """Put the commands into the group of jobs."""
    group.command("replace")(jobs_replace)
    group.command("erase")(jobs_erase)


def jobs_replace(
    job_id: Annotated[UUID, typer.Argument(metavar="ID", help="The job that is to be corrected; it has ended.")],
    app: Annotated[str, typer.Argument(metavar="APP", help="The app that has the action: a file or a module, and a name.")],
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The corrected input, as JSON.")],
    key: Annotated[str, typer.Option(help="The key that was issued for the correction; not one made from the old.")],
    who: AsOption,
    reason: ReasonOption,
    *,
    as_json: JsonOption = False,
) -> None:
    """Replace an ended job by a correction: a job of its own, linked to it, through a fresh approval."""
    try:
        body: object = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise CommandError(f"{file} is no file of JSON", Exit.USAGE) from error
    if not isinstance(body, dict):
        raise CommandError(f"{file} holds no object", Exit.USAGE)
    password = ask_password(who)

    async def work(desk: Installation) -> Accepted:
        principal = await person(desk, who, password)
        given = cast("dict[str, Any]", body)
        return await desk.rounds.replace(principal, job_id, given, key, reason, door=DOOR, source="cli")

    accepted = run(work, app=app)
    if as_json:
        show_json({"job_id": accepted.job_id, "status": accepted.state, "replaces": job_id, "replayed": accepted.replayed})
        return
    say(f"{accepted.job_id} {'replaces' if not accepted.replayed else 'replaced already'} {job_id}; it is {accepted.state}")


def jobs_erase(
    subject: Annotated[str, typer.Option(metavar="NAME", help="Whose jobs, as the action's `data_subject` finds it.")],
    who: AsOption,
    reason: ReasonOption,
    *,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Erase what is kept about a person: contents, keys and payload hashes. Decisions, receipts' ids and the audit stay."""
    password = ask_password(who)
    if not yes and not typer.confirm("It cannot be undone. Erase?", default=False, err=True):
        raise CommandError("nothing was erased; --yes does not ask", Exit.REFUSED)

    async def work(desk: Installation) -> Erased:
        principal = await person(desk, who, password)
        erasure = Erasure(desk.pool)
        done = await erasure.erase(principal, subject, reason, door=DOOR)
        jobs = done.jobs
        while not done.complete:
            done = await erasure.erase(principal, subject, reason, door=DOOR)
            jobs += done.jobs
        return Erased(jobs, done.not_ended, complete=True)

    done = run(work)
    if as_json:
        show_json(done)
    else:
        say(f"{done.jobs:,} jobs erased")
    if done.not_ended:
        named = ", ".join(str(job_id) for job_id in done.not_ended[:5])
        raise CommandError(f"{len(done.not_ended)} have not ended and were left; cancel them or ask again later: {named}")
