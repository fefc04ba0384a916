"""The audit at the terminal: is the chain whole, and a copy of it to keep elsewhere."""

from dataclasses import asdict, replace

import typer

from deedbox.cli.output import CommandError, say, show_json
from deedbox.cli.session import JsonOption, reader, run
from deedbox.operate.audit import ChainCheck, check, export
from deedbox.wiring import Installation

audit = typer.Typer(no_args_is_help=True, help="Who did what, when and why, in a chain that shows tampering.")


@audit.command("verify")
def audit_verify(*, as_json: JsonOption = False) -> None:
    """Walk the whole chain; exit code 1 names the first entry that is missing or was changed."""

    async def work(desk: Installation) -> ChainCheck:
        return await check(desk.pool)

    found = run(work)
    if as_json:
        show_json({**asdict(found), "whole": found.whole})
    elif found.whole:
        say(f"whole: {found.entries} entries, the last with hash {found.head_sha256}")
    if not found.whole:
        raise CommandError(f"the chain is broken at entry {found.first_broken} of {found.entries}")


@audit.command("export")
def audit_export() -> None:
    """Print every entry as a line of JSON, and the head last; keep it where this database's superuser cannot reach."""

    async def work(desk: Installation) -> None:
        # Whoever can run this can read the database as it is; the role is for doors that are open to others.
        one = replace(reader(desk.settings), roles=frozenset({"admin"}))
        async for line in export(desk.pool, one):
            print(line)

    run(work)
