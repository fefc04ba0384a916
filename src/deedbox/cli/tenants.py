"""Roles of one's own, and tenants. None of this works over HTTP; each change is in the audit, with `terminal` as its actor."""

from typing import Annotated

import typer

from deedbox.access import RoleLine, TenantLine, add_tenant, list_roles, list_tenants, put_role, remove_role
from deedbox.cli.output import CommandError, Exit, say, show_json, show_table
from deedbox.cli.session import JsonOption, run
from deedbox.wiring import Installation

roles = typer.Typer(no_args_is_help=True, help="What a role may do: the built-in ones, and your own.")
tenants = typer.Typer(no_args_is_help=True, help="Whose data it is.")

VerbOption = Annotated[
    list[str] | None, typer.Option("--verb", metavar="VERB", help="What it may do, such as read or decide; may repeat.")
]


@roles.command("list")
def roles_list(*, as_json: JsonOption = False) -> None:
    """Every role with its verbs, the built-in ones first."""

    async def work(desk: Installation) -> list[RoleLine]:
        return await list_roles(desk.pool)

    lines = run(work)
    if as_json:
        show_json(lines)
        return
    rows = [[one.role, ", ".join(one.verbs) or None, "built in" if one.built_in else "own", one.holders] for one in lines]
    show_table(["role", "may", "kind", "held by"], rows, empty="no roles")


@roles.command("add")
def roles_add(role: str, verb: VerbOption = None) -> None:
    """Make a role of your own, or change what it may do; without a verb it is a name for a group of approvers alone."""

    async def work(desk: Installation) -> bool:
        return await put_role(desk.pool, desk.settings.tenant, role, verb or [])

    new = run(work, make=True)
    may = ", ".join(sorted(set(verb or []))) or "do nothing by itself"
    say(f"{role} {'is a role now' if new else 'was changed'}: it may {may}")


@roles.command("remove")
def roles_remove(role: str) -> None:
    """Remove a role of your own that nobody holds."""

    async def work(desk: Installation) -> bool:
        return await remove_role(desk.pool, desk.settings.tenant, role)

    if not run(work):
        raise CommandError(f"{role} is built in, held by somebody, or no role", Exit.NOT_THERE)
    say(f"{role} is no role any more")


@tenants.command("list")
def tenants_list(*, as_json: JsonOption = False) -> None:
    """Every tenant, with how many people and services may come in."""

    async def work(desk: Installation) -> list[TenantLine]:
        return await list_tenants(desk.pool)

    lines = run(work)
    if as_json:
        show_json(lines)
        return
    show_table(
        ["tenant", "people", "services", "since"],
        [[one.tenant, one.people, one.services, one.created_at] for one in lines],
        empty="no tenants",
    )


@tenants.command("add")
def tenants_add(name: str) -> None:
    """Make a tenant. DEEDBOX_TENANT says which one the commands work on and local accounts log in to."""

    async def work(desk: Installation) -> None:
        await add_tenant(desk.pool, name)

    run(work, make=True)
    say(f"{name} is a tenant now")
