"""How each case of tests/doors.py comes about: who decides what, put there by the gate itself."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from datetime import timedelta
from uuid import UUID

from deedbox.access import csrf_of
from deedbox.access.keys import digest as digest_of
from deedbox.gate.cancel import cancel_locked
from deedbox.gate.delegate import delegate, withdraw
from deedbox.model.consequence import Consequence
from deedbox.model.identity import Principal
from deedbox.store.transaction import transaction
from tests.decisions import Desk, Held
from tests.servers.commands import Cli

OTHER_TENANT = "elsewhere"


@dataclass
class Stage:
    """One server and one command line over one database, and the people who were made so far."""

    desk: Desk
    url: str
    cli: Cli
    password_hash: str
    number: int = 0
    sessions: dict[str, str] = field(default_factory=dict[str, str])

    async def person(self, *roles: str, tenant: str = "default") -> Principal:
        """Somebody new with these roles, a password and a session."""
        self.number += 1
        name = f"person {self.number}"
        made = await self.desk.person(name, *roles)
        await self.desk.database.rows(
            "UPDATE deedbox.principal SET tenant = %s, password_hash = %s WHERE principal_id = %s",
            tenant,
            self.password_hash,
            made.principal_id,
        )
        made = self.desk.people[name] = replace(made, tenant=tenant)
        token = self.sessions[name] = f"session-of-{self.number}"
        # Opened long ago: a fresh login would be proof enough for something grave.
        await self.desk.database.rows(
            "INSERT INTO deedbox.session (session_sha256, principal_id, method, csrf_sha256, authenticated_at, expires_at)"
            " VALUES (%s, %s, 'password', %s, deedbox.clock() - interval '1 hour', deedbox.clock() + interval '1 day')",
            digest_of(token),
            made.principal_id,
            digest_of(csrf_of(token)),
        )
        return made

    async def change(self, held: Held, column: str, value: object) -> None:
        """Make the approval what the case needs."""
        await self.desk.database.rows(
            f"UPDATE deedbox.approval SET {column} = %s WHERE approval_id = %s",  # noqa: S608 -- a name from this file
            value,
            held.approval_id,
        )


@dataclass
class Case:
    """Who decides what, and how."""

    who: Principal
    held: Held
    choice: str = "approve"
    reason: str = "because"
    digest: str | None = ""

    @property
    def shown(self) -> str | None:
        """The digest that is sent."""
        return self.held.digest if self.digest == "" else self.digest


Setup = Callable[[Stage], Awaitable[Case]]
SETUPS: dict[str, Setup] = {}


def case(name: str) -> Callable[[Setup], Setup]:
    """How the case of this name comes about."""

    def register(setup: Setup) -> Setup:
        SETUPS[name] = setup
        return setup

    return register


@case("approve")
async def _approve(stage: Stage) -> Case:
    return Case(await stage.person("manager"), await stage.desk.one())


@case("reject")
async def _reject(stage: Stage) -> Case:
    return replace(await _approve(stage), choice="reject")


@case("no reason")
async def _no_reason(stage: Stage) -> Case:
    return replace(await _approve(stage), choice="reject", reason=" ")


@case("no digest")
async def _no_digest(stage: Stage) -> Case:
    return replace(await _approve(stage), digest=None)


@case("other digest")
async def _other_digest(stage: Stage) -> Case:
    return replace(await _approve(stage), digest="11" * 32)


@case("not audience")
async def _not_audience(stage: Stage) -> Case:
    return Case(await stage.person("operator"), await stage.desk.one())


@case("admin")
async def _admin(stage: Stage) -> Case:
    return Case(await stage.person("admin"), await stage.desk.one())


@case("no verb")
async def _no_verb(stage: Stage) -> Case:
    held = await stage.desk.one()
    await stage.change(held, "audience", ["auditor"])
    return Case(await stage.person("auditor", "viewer"), held)


@case("not allowed")
async def _not_allowed(stage: Stage) -> Case:
    found = await _approve(stage)
    await stage.change(found.held, "allowed", ["reject"])
    return found


@case("requester")
async def _requester(stage: Stage) -> Case:
    who = await stage.person("manager")
    return Case(who, await stage.desk.one(subject=who))


async def _edited_by(stage: Stage, consequence: Consequence) -> Case:
    who, held = await stage.person("manager"), await stage.desk.one()
    newer = await stage.desk.edit(who, held, {"default-1": {"text": "other"}})
    await stage.change(newer, "consequence", consequence)
    return Case(who, newer)


@case("editor")
async def _editor(stage: Stage) -> Case:
    return await _edited_by(stage, "consequential")


@case("editor, undoable")
async def _editor_undoable(stage: Stage) -> Case:
    return await _edited_by(stage, "reversible")


@case("first of two")
async def _first_of_two(stage: Stage) -> Case:
    found = await _approve(stage)
    await stage.change(found.held, "quorum", 2)
    return found


@case("second of two")
async def _second_of_two(stage: Stage) -> Case:
    found = await _first_of_two(stage)
    await stage.desk.decide(await stage.person("manager"), found.held)
    return found


@case("twice")
async def _twice(stage: Stage) -> Case:
    found = await _first_of_two(stage)
    await stage.desk.decide(found.who, found.held)
    return found


@case("expired")
async def _expired(stage: Stage) -> Case:
    found = await _approve(stage)
    await stage.change(found.held, "expires_at", await stage.desk.now() - timedelta(seconds=1))
    return found


@case("decided")
async def _decided(stage: Stage) -> Case:
    found = await _approve(stage)
    await stage.desk.decide(await stage.person("manager"), found.held)
    return found


@case("edited")
async def _edited(stage: Stage) -> Case:
    found = await _approve(stage)
    await stage.desk.edit(await stage.person("manager"), found.held, {"default-1": {"text": "other"}})
    return found


@case("withdrawn")
async def _withdrawn(stage: Stage) -> Case:
    found = await _approve(stage)
    async with transaction(stage.desk.pool) as connection:
        await cancel_locked(connection, stage.desk.ids, found.held.job_id, "no longer needed")
    return found


@case("unknown")
async def _unknown(stage: Stage) -> Case:
    return Case(await stage.person("manager"), Held(stage.desk.ids.new(), "11" * 32, UUID(int=0)))


@case("other tenant")
async def _other_tenant(stage: Stage) -> Case:
    return Case(await stage.person("manager", tenant=OTHER_TENANT), await stage.desk.one())


@case("grave")
async def _grave(stage: Stage) -> Case:
    found = await _approve(stage)
    await stage.change(found.held, "consequence", "grave")
    return found


@case("domain")
async def _domain(stage: Stage) -> Case:
    found = await _approve(stage)
    await stage.change(found.held, "required_role", "physician")
    return found


@case("domain, licensed")
async def _licensed(stage: Stage) -> Case:
    held = await stage.desk.one()
    await stage.change(held, "required_role", "physician")
    return Case(await stage.person("manager", "physician"), held)


async def _hand(
    stage: Stage, held: Held | None, *, to: Principal | None = None, hours: float = 1.0
) -> tuple[Principal, Principal, UUID]:
    holder, who = await stage.person("manager"), to or await stage.person("operator")
    made = await delegate(
        stage.desk.pool,
        stage.desk.ids,
        holder,
        to=who.name,
        approval_id=None if held is None else held.approval_id,
        until=None if held is not None else await stage.desk.now() + timedelta(hours=hours),
        reason=None,
        how="test",
    )
    return holder, who, made.delegation_id


@case("delegated")
async def _delegated(stage: Stage) -> Case:
    held = await stage.desk.one()
    _, who, _ = await _hand(stage, held)
    return Case(who, held)


@case("delegation over")
async def _delegation_over(stage: Stage) -> Case:
    _, who, delegation_id = await _hand(stage, None)
    await stage.desk.database.rows(
        "UPDATE deedbox.delegation SET until = deedbox.clock() - interval '1 s' WHERE delegation_id = %s", delegation_id
    )
    return Case(who, await stage.desk.one())


@case("delegation taken back")
async def _taken_back(stage: Stage) -> Case:
    held = await stage.desk.one()
    holder, who, delegation_id = await _hand(stage, held)
    await withdraw(stage.desk.pool, holder, delegation_id, how="test")
    return Case(who, held)


@case("delegated to the requester")
async def _to_the_requester(stage: Stage) -> Case:
    _, who, _ = await _hand(stage, None)
    return Case(who, await stage.desk.one(subject=who))


@case("delegated, grave")
async def _delegated_grave(stage: Stage) -> Case:
    found = await _delegated(stage)
    await stage.change(found.held, "consequence", "grave")
    return found


@case("say used")
async def _say_used(stage: Stage) -> Case:
    held = await stage.desk.one()
    await stage.change(held, "quorum", 2)
    holder, who, _ = await _hand(stage, held)
    await stage.desk.decide(holder, held)
    return Case(who, held)
