"""People and services. None of this works over HTTP: who makes users sits at the machine.

Each change is in the audit, with `terminal` as its actor: who can run these commands holds the database's URL, and no more
is known of them.
"""

from typing import Annotated
from uuid import UUID

import typer

from deedbox.access import (
    SessionLine,
    add_user,
    disable_user,
    enable_user,
    end_sessions,
    grant_roles,
    list_sessions,
    set_email,
    withdraw_roles,
)
from deedbox.cli.output import CommandError, Exit, say, show_json, show_table
from deedbox.cli.session import JsonOption, ask_password, run
from deedbox.operate.doctor import PrincipalLine, people
from deedbox.wiring import Installation

users = typer.Typer(no_args_is_help=True, help="The people who decide and operate.")

RoleOption = Annotated[
    list[str], typer.Option("--role", metavar="ROLE", help="viewer, operator, manager, admin or your own; may repeat.")
]


@users.command("add")
def users_add(
    name: str,
    role: RoleOption,
    email: Annotated[str | None, typer.Option(metavar="ADDRESS", help="Where approvals are asked for by mail.")] = None,
) -> None:
    """Make a person; the password comes from the terminal, or as one line on standard input."""
    password = ask_password(name, twice=True)

    async def work(desk: Installation) -> None:
        await add_user(desk.pool, desk.ids, desk.settings.tenant, name, role, password, email=email)

    run(work, make=True)
    say(f"{name} can log in now, as {', '.join(sorted(set(role)))}")


@users.command("list")
def users_list(*, as_json: JsonOption = False) -> None:
    """Everybody, people before services, with roles and living keys."""

    async def work(desk: Installation) -> list[PrincipalLine]:
        return await people(desk.pool, desk.settings.tenant)

    lines = run(work)
    if as_json:
        show_json(lines)
        return
    rows = [
        [line.name, line.kind, line.roles, line.email, line.keys or None, line.created_at, line.disabled_at] for line in lines
    ]
    show_table(
        ["name", "kind", "roles", "email", "keys", "since", "disabled"],
        rows,
        empty="nobody yet: deedbox users add NAME --role manager",
    )


@users.command("email")
def users_email(
    name: str, address: Annotated[str, typer.Argument(metavar="ADDRESS", help="A plain address, or `none`.")]
) -> None:
    """Say where a person is written to when an approval waits, or `none` for nowhere."""
    email = None if address == "none" else address

    async def work(desk: Installation) -> bool:
        return await set_email(desk.pool, desk.settings.tenant, name, email)

    if not run(work):
        raise CommandError(f"no person is called {name}", Exit.NOT_THERE)
    say(f"{name} is written to at {email}" if email else f"{name} is not written to any more")


@users.command("sessions")
def users_sessions(
    name: str,
    *,
    end: Annotated[UUID | None, typer.Option(metavar="ID", help="End this one.")] = None,
    as_json: JsonOption = False,
) -> None:
    """The living sessions of a person: how and from where each was opened; `--end` ends one of them."""

    async def work(desk: Installation) -> list[SessionLine]:
        pool, tenant = desk.pool, desk.settings.tenant
        if end is not None and not await end_sessions(pool, tenant, name, session_id=end):
            raise CommandError(f"{name} has no open session with this id", Exit.NOT_THERE)
        return await list_sessions(pool, tenant, name)

    lines = run(work)
    if as_json:
        show_json(lines)
        return
    rows = [[one.session_id, one.method, one.peer, one.opened_at, one.seen_at, one.expires_at] for one in lines]
    show_table(["id", "by", "from", "opened", "last seen", "ends"], rows, empty=f"{name} is not logged in")


@users.command("log-out")
def users_log_out(name: str) -> None:
    """End every session of a person."""

    async def work(desk: Installation) -> int:
        return await end_sessions(desk.pool, desk.settings.tenant, name)

    ended = run(work)
    say("1 session ended" if ended == 1 else f"{ended} sessions ended")


@users.command("disable")
def users_disable(name: str) -> None:
    """Shut out a person or a service: sessions end, and neither password nor key opens anything."""

    async def work(desk: Installation) -> bool:
        return await disable_user(desk.pool, desk.settings.tenant, name)

    if not run(work):
        raise CommandError(f"nobody who is active is called {name}", Exit.NOT_THERE)
    say(f"{name} is shut out; running processes believe a key for two more seconds at most")


@users.command("enable")
def users_enable(name: str) -> None:
    """Let in again who was disabled, with roles and keys as they were."""

    async def work(desk: Installation) -> bool:
        return await enable_user(desk.pool, desk.settings.tenant, name)

    if not run(work):
        raise CommandError(f"nobody who is disabled is called {name}", Exit.NOT_THERE)
    say(f"{name} is let in again")


@users.command("grant")
def users_grant(name: str, role: RoleOption) -> None:
    """Give roles to a person or a service; they count from the next request on."""

    async def work(desk: Installation) -> list[str]:
        return await grant_roles(desk.pool, desk.settings.tenant, name, role)

    given = run(work)
    say(f"{name} is {', '.join(given)} now" if given else "nothing was changed: those roles were there already")


@users.command("withdraw")
def users_withdraw(name: str, role: RoleOption) -> None:
    """Take roles from a person or a service; they count until the next request."""

    async def work(desk: Installation) -> list[str]:
        return await withdraw_roles(desk.pool, desk.settings.tenant, name, role)

    taken = run(work)
    say(f"{name} is no longer {', '.join(taken)}" if taken else "nothing was changed: none of those roles was there")
