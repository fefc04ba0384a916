"""Keys of services, of forms and of people. Each change is in the audit.

Keys of services and forms are made by whoever sits at the machine; a personal key is made by its person, who logs in for it.
"""

from typing import Annotated
from uuid import UUID

import typer

from deedbox.access import (
    KeyLine,
    MintedKey,
    RotatedKey,
    add_form_key,
    add_key,
    list_keys,
    mint_personal_key,
    revoke_key,
    rotate_key,
)
from deedbox.cli.output import CommandError, Exit, complain, show_json, show_table
from deedbox.cli.people import RoleOption
from deedbox.cli.session import AsOption, JsonOption, ask_password, person, run
from deedbox.model.backoff import seconds
from deedbox.wiring import Installation

keys = typer.Typer(no_args_is_help=True, help="Keys of the services that call the API.")

LabelOption = Annotated[str, typer.Option(help="What it is for, shown in the list.")]
ExpiresOption = Annotated[str | None, typer.Option(help="For example 90d; without it the key does not expire.")]


def _seconds(text: str, option: str) -> float:
    try:
        return seconds(text, name=option)
    except ValueError as error:
        raise CommandError(str(error), Exit.USAGE) from error


@keys.command("add")
def keys_add(
    name: str,
    role: RoleOption,
    label: LabelOption = "",
    expires: ExpiresOption = None,
    acts_for_others: Annotated[
        bool, typer.Option("--acts-for-others", help="It may name a person for whom it calls (Deedbox-On-Behalf-Of).")
    ] = False,
) -> None:
    """Make a key of a service, and print it this once: only its hash is kept."""
    expires_s = None if expires is None else _seconds(expires, "--expires")

    async def work(desk: Installation) -> str:
        pool, ids, tenant = desk.pool, desk.ids, desk.settings.tenant
        return await add_key(pool, ids, tenant, name, role, label, expires_s, acts_for_others=acts_for_others)

    print(run(work, make=True))


@keys.command("add-form")
def keys_add_form(
    name: str,
    role: RoleOption,
    action: Annotated[str, typer.Option(help="The one action that it submits.")],
    origin: Annotated[list[str], typer.Option(help="Where its pages are, such as https://www.example.com; may repeat.")],
    rate: Annotated[int, typer.Option(help="Most calls a minute, over all processes.")] = 60,
    label: LabelOption = "",
    expires: ExpiresOption = None,
) -> None:
    """Make a public key for a form: it submits one action from its own pages, and opens nothing else."""
    expires_s = None if expires is None else _seconds(expires, "--expires")

    async def work(desk: Installation) -> str:
        pool, ids, tenant = desk.pool, desk.ids, desk.settings.tenant
        return await add_form_key(
            pool, ids, tenant, name, role, label, action=action, origins=origin, rate_per_minute=rate, expires_s=expires_s
        )

    print(run(work, make=True))


@keys.command("mint")
def keys_mint(
    as_: AsOption,
    hours: Annotated[float, typer.Option(min=1 / 60, max=8, help="How long it lives, eight hours at most.")] = 8,
    label: LabelOption = "",
) -> None:
    """Make a personal key, and print it this once: it reads, decides, switches and reconciles as far as its person may."""
    password = ask_password(as_)

    async def work(desk: Installation) -> MintedKey:
        who = await person(desk, as_, password)
        return await mint_personal_key(desk.pool, desk.ids, who, label, hours * 3600, door="cli")

    print(run(work).key)


@keys.command("rotate")
def keys_rotate(
    which: Annotated[str, typer.Argument(metavar="LABEL", help="The key's label, or its id.")],
    overlap: Annotated[str, typer.Option(help="How long the old key stays good, for example 24h; 0s for not at all.")] = "24h",
) -> None:
    """Make a key that may do the same, and print it this once; the old one ends after the overlap."""
    overlap_s = 0.0 if overlap.strip() in {"0", "0s"} else _seconds(overlap, "--overlap")

    async def work(desk: Installation) -> RotatedKey:
        return await rotate_key(desk.pool, desk.ids, desk.settings.tenant, which, overlap_s)

    done = run(work)
    print(done.key)
    complain(f"the key {done.old_key_id} is good until {done.old_until:%Y-%m-%d %H:%M:%S %Z}; the new one is {done.key_id}")


@keys.command("list")
def keys_list(*, as_json: JsonOption = False) -> None:
    """All keys, newest first, without what opens a door."""

    async def work(desk: Installation) -> list[KeyLine]:
        return await list_keys(desk.pool, desk.settings.tenant)

    lines = run(work)
    if as_json:
        show_json(lines)
        return
    rows = [
        [
            line.key_id,
            line.name,
            _kind(line),
            line.label,
            line.created_at,
            line.expires_at,
            line.last_used_at,
            line.revoked_at,
            line.replaced_by,
        ]
        for line in lines
    ]
    show_table(
        ["id", "of", "kind", "label", "made", "expires", "last used", "revoked", "replaced by"],
        rows,
        empty="no keys yet: deedbox keys add NAME --role operator",
    )


def _kind(line: KeyLine) -> str:
    if line.kind == "form":
        return f"form: {line.action} from {', '.join(line.origins or ())}"
    return f"{line.kind}, acts for others" if line.acts_for_others else line.kind


@keys.command("revoke")
def keys_revoke(key_id: Annotated[UUID, typer.Argument(metavar="ID")]) -> None:
    """End a key; running processes believe it for two more seconds at most."""

    async def work(desk: Installation) -> bool:
        return await revoke_key(desk.pool, desk.settings.tenant, key_id)

    if not run(work):
        raise CommandError("there is no living key with this id", Exit.NOT_THERE)
    print("revoked")
