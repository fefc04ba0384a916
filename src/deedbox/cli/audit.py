"""The audit at the terminal: what is in it, is the chain whole, and a copy of it to keep elsewhere."""

from dataclasses import asdict, replace
from datetime import datetime
from pathlib import Path
from typing import Annotated

import typer

from deedbox.cli.answers import add_questions
from deedbox.cli.output import CommandError, Exit, plain, say, show_json, show_table
from deedbox.cli.session import JsonOption, LimitOption, reader, run
from deedbox.model.errors import DeedboxError
from deedbox.model.identity import Principal
from deedbox.operate.audit import AuditPage, ChainCheck, Format, Head, check, check_file, export, head, listed, read_head
from deedbox.wiring import Installation

audit = typer.Typer(no_args_is_help=True, help="Who did what, when and why, in a chain that shows tampering.")

SinceOption = Annotated[str | None, typer.Option(metavar="TIME", help="From this moment on, RFC 3339 with its zone.")]
UntilOption = Annotated[str | None, typer.Option(metavar="TIME", help="Before this moment, RFC 3339 with its zone.")]
HEAD_BYTES = 4096


@audit.command("list")
def audit_list(
    actor: Annotated[str | None, typer.Option(help="Only what this person or program did.")] = None,
    verb: Annotated[str | None, typer.Option(help="Only entries of this verb, for example approve.")] = None,
    subject: Annotated[str | None, typer.Option(metavar="ID", help="Only what was done on this job, approval, effect.")] = None,
    since: SinceOption = None,
    until: UntilOption = None,
    before: Annotated[int | None, typer.Option(min=1, metavar="NUMBER", help="Only entries below this number.")] = None,
    limit: LimitOption = 50,
    *,
    as_json: JsonOption = False,
) -> None:
    """Entries, newest first."""
    first, last = _moment(since, "--since"), _moment(until, "--until")

    async def work(desk: Installation) -> AuditPage:
        return await listed(
            desk.pool,
            _at_the_machine(desk),
            actor=actor,
            verb=verb,
            subject=subject,
            since=first,
            until=last,
            before=before,
            limit=limit,
        )

    page = run(work)
    if as_json:
        show_json({"entries": page.entries, "before": page.before})
        return
    show_table(
        ["", "at (UTC)", "who", "by", "did", "on", "why"],
        [
            [
                entry["seq"],
                entry["at"][:19].replace("T", " "),
                entry["actor"],
                f"{entry['door']}, {entry['method']}",
                entry["verb"],
                f"{entry['subject_kind']} {entry['subject_id']}",
                entry["reason"],
            ]
            for entry in page.entries
        ],
        empty="no such entries",
    )
    if page.before is not None:
        say(f"there are more: --before {page.before}")


@audit.command("verify")
def audit_verify(
    file: Annotated[Path | None, typer.Option(metavar="FILE", help="Verify an export by itself, without a database.")] = None,
    kept: Annotated[
        str | None,
        typer.Option("--head", metavar="HEAD", help="A head kept elsewhere: NUMBER:HASH, or a file that ends with it."),
    ] = None,
    *,
    as_json: JsonOption = False,
) -> None:
    """Walk the whole chain; exit code 1 names the first entry that is missing or was changed."""
    exported = None if kept is None else _kept(kept)

    async def work(desk: Installation) -> ChainCheck:
        return await check(desk.pool, exported)

    found = run(work) if file is None else _in_file(file, exported)
    if as_json:
        show_json({**asdict(found), "whole": found.whole})
    elif found.whole:
        said = [f"{found.erased} without their details, which were erased"] if found.erased else []
        said += [f"{found.withheld} of other tenants, followed by their links alone"] if found.withheld else []
        more = f" ({'; '.join(said)})" if said else ""
        say(f"whole: {found.entries} entries{more}, the last with hash {found.head_sha256}")
    if not found.whole:
        raise CommandError(f"the chain is broken at entry {found.first_broken} of {found.entries}: {found.why}")


@audit.command("export")
def audit_export(
    since: SinceOption = None,
    until: UntilOption = None,
    form: Annotated[Format, typer.Option("--format", help="NDJSON can be verified by itself; CSV is for reading.")] = "ndjson",
    *,
    only_head: Annotated[bool, typer.Option("--head", help="Only where the chain ends now, as NUMBER:HASH.")] = False,
) -> None:
    """Print the entries, and the head last; keep it where this database's superuser cannot reach."""
    first, last = _moment(since, "--since"), _moment(until, "--until")

    async def work(desk: Installation) -> None:
        if only_head:
            _print_head(await head(desk.pool))
            return
        async for line in export(desk.pool, _at_the_machine(desk), since=first, until=last, form=form):
            print(line)

    run(work)


add_questions(audit)


def _at_the_machine(desk: Installation) -> Principal:
    # Whoever can run this can read the database as it is; the role is for doors that are open to others.
    return replace(reader(desk.settings), roles=frozenset({"admin"}))


def _print_head(end: Head) -> None:
    print(f"{end.seq}:{end.entry_sha256.hex()}")


def _moment(text: str | None, option: str) -> datetime | None:
    if text is None:
        return None
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        found = None
    if found is None or found.tzinfo is None:
        raise CommandError(f"{option}: give a date and time with its zone, such as 2027-03-01T09:00:00Z", Exit.USAGE)
    return found


def _kept(text: str) -> Head:
    path = Path(text)
    if ":" not in text and path.is_file():
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - HEAD_BYTES))
            text = file.read().decode(errors="replace").rstrip("\n").rpartition("\n")[2]
    try:
        return read_head(text)
    except DeedboxError as error:
        raise CommandError(f"--head: {error.detail}", Exit.USAGE) from error


def _in_file(path: Path, exported: Head | None) -> ChainCheck:
    try:
        with path.open(encoding="utf-8") as file:
            return check_file(file, exported)
    except (OSError, UnicodeDecodeError) as error:
        raise CommandError(f"{plain(path)} cannot be read: {type(error).__name__}", Exit.NOT_THERE) from error
    except DeedboxError as error:
        raise CommandError(error.sentence) from error
