"""The audit at the terminal: is the chain whole, and a copy of it to keep elsewhere."""

import typer

from deedbox.cli.output import CommandError, say, show_json
from deedbox.cli.session import JsonOption, run
from deedbox.operate.audit import Checked, check, export
from deedbox.wiring import Installation

audit = typer.Typer(no_args_is_help=True, help="Who did what, when and why, in a chain that shows tampering.")


@audit.command("verify")
def audit_verify(*, as_json: JsonOption = False) -> None:
    """Walk the whole chain; exit code 1 names the first entry that is missing or was changed."""

    async def work(desk: Installation) -> Checked:
        return await check(desk.pool)

    found = run(work)
    if as_json:
        show_json({**{name: getattr(found, name) for name in ("entries", "head_hex", "broken_at")}, "whole": found.broken_at is None})
    elif found.broken_at is None:
        say(f"whole: {found.entries} entries, the last with hash {found.head_hex}")
    if found.broken_at is not None:
        raise CommandError(f"the chain is broken at entry {found.broken_at} of {found.entries}")


@audit.command("export")
def audit_export() -> None:
    """Print every entry as a line of JSON, and the head last; keep it where this database's superuser cannot reach."""

    async def work(desk: Installation) -> None:
        async for line in export(desk.pool):
            print(line)

    run(work)
