"""Every door times every rule: one test, a cell each. The table is tests/doors.py; here is how each case comes about.

A refusal changes nothing anywhere, and says at every door the same sentence.
"""

import asyncio
import html
import re
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any
from uuid import UUID

import httpx2
import pytest
import uvicorn

from deedbox.access import LoginGuard, Passwords, csrf_of, resolve_session
from deedbox.access.keys import digest as digest_of
from deedbox.gate.cancel import cancel_locked
from deedbox.gate.delegate import delegate, withdraw
from deedbox.http.app import make_app as make_http
from deedbox.http.deps import HttpDeps
from deedbox.intake.submit import Intake
from deedbox.model.consequence import Consequence
from deedbox.model.errors import DeedboxError
from deedbox.model.identity import Principal
from deedbox.operate.alerts import Alerts
from deedbox.operate.lanes import Lanes
from deedbox.operate.policy import Policies
from deedbox.operate.rounds import Rounds
from deedbox.operate.verbs import Verbs
from deedbox.operate.views import Views
from deedbox.store.transaction import transaction
from deedbox.web import WebDeps
from deedbox.web import routes as web_routes
from deedbox.web.routes import HEADINGS
from tests.database import fresh_database
from tests.decisions import Desk, Held, decisions_on
from tests.doors import DOORS, RULES, SERVICE, Door, Rule
from tests.guarantees import proves
from tests.servers.commands import PASSWORD, Cli

pytestmark = pytest.mark.anyio
OTHER_TENANT = "elsewhere"
TOKENS = re.compile(r"(personal|service) (.+)")


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
            "INSERT INTO deedbox.session (session_sha256, principal_id, method, csrf_sha256, created_at, expires_at)"
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


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    """The loop of the whole module, so that the server is started once."""
    return "asyncio"


@pytest.fixture(scope="module")
async def stage(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Stage]:
    """The server with its pages, and the command line."""
    async with fresh_database() as database, decisions_on(database) as desk:
        await database.rows("INSERT INTO deedbox.tenant (tenant) VALUES (%s)", OTHER_TENANT)
        listener = socket.create_server(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        passwords = Passwords()

        async def resolve(bearer: str) -> Principal | None:
            match = TOKENS.fullmatch(bearer)
            if match is None:
                session = await resolve_session(desk.pool, bearer)
                return session.principal if session else None
            who = desk.people[match[2]]
            if match[1] == "personal":
                return replace(who, method="personal_key")
            return replace(who, kind="service", method="api_key")

        intake = Intake(desk.pool, desk.ids, desk.app.actions, public_url=url, max_waiting=10)
        web = WebDeps(
            pool=desk.pool,
            public_url=url,
            tenant="default",
            card=desk.approvals.card,
            decide=desk.approvals.decide,
            inbox=desk.approvals.inbox,
            approvals=desk.approvals,
            guard=LoginGuard(passwords),
        )
        app = make_http(
            HttpDeps(
                app=desk.app,
                intake=intake,
                views=Views(desk.pool, desk.app.actions),
                resolve_key=resolve,
                verbs=Verbs(desk.pool, desk.ids, desk.app.connectors),
                approvals=desk.approvals,
                rounds=Rounds(desk.pool, desk.ids, desk.app.actions, intake),
                lanes=Lanes(desk.pool),
                policies=Policies(desk.pool, desk.app.actions, desk.app.connectors),
                alerts=Alerts(desk.pool),
                public_url=url,
                extra_routes=tuple(web_routes(web)),
            )
        )
        server = uvicorn.Server(uvicorn.Config(app, log_config=None, lifespan="off", ws="none"))
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        cli = Cli(database.url, tmp_path_factory.mktemp("cli"))
        try:
            yield Stage(desk, url, cli, await passwords.hash(PASSWORD))
        finally:
            server.should_exit = True
            await serving


# The cases -------------------------------------------------------------------------------------------------------------


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


# The doors -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Answer:
    """What a door said: the state the approval has then, or the code of a refusal; and the words."""

    got: str
    words: str


async def _by_page(stage: Stage, found: Case) -> Answer:
    token = stage.sessions[found.who.name]
    form = {"csrf": csrf_of(token), "decision": found.choice, "reason": found.reason}
    form |= {} if found.shown is None else {"digest": found.shown}
    headers = {"Origin": stage.url, "Sec-Fetch-Site": "same-origin"}
    async with httpx2.AsyncClient(
        base_url=stage.url, cookies={"deedbox_session": token}, headers=headers, trust_env=False
    ) as client:
        sent = await client.post(f"/approvals/{found.held.approval_id}", data=form)
    if sent.status_code == 303:
        return Answer(await stage.desk.state(found.held), "")
    words = html.unescape(re.sub(r"<[^>]+>", "", sent.text))
    if sent.status_code == 401:
        return Answer("unauthenticated", words)
    named = [
        code
        for code, heading in HEADINGS.items()
        if f"<strong>{heading}</strong>" in sent.text or f"<h1>{heading}" in sent.text
    ]
    assert len(named) == 1, (sent.status_code, named, words[:400])
    return Answer(named[0], words)


async def _by_api(stage: Stage, found: Case, bearer: str) -> Answer:
    body: dict[str, Any] = {"decision": found.choice, "reason": found.reason}
    body |= {} if found.shown is None else {"digest": found.shown}
    headers = {"Authorization": f"Bearer {bearer}"}
    async with httpx2.AsyncClient(base_url=stage.url, headers=headers, trust_env=False) as client:
        sent = await client.post(f"/api/approvals/{found.held.approval_id}/decision", json=body)
    answer = sent.json()
    return Answer(answer["state"], "") if sent.status_code == 200 else Answer(answer["code"], answer["detail"])


async def _by_command(stage: Stage, found: Case) -> Answer:
    cli = stage.cli if found.who.tenant == "default" else stage.cli.but(DEEDBOX_TENANT=found.who.tenant)
    given = ["--as", found.who.name, "--digest", found.shown or "", "--reason", found.reason]
    ended = await cli("approvals", found.choice, str(found.held.approval_id), *given, "--json", stdin=f"{PASSWORD}\n")
    if ended.code == 0:
        return Answer(str(ended.json()["state"]), "")
    # The terminal says the sentence and no code; the function knows which code that sentence has.
    asked = await _by_function(stage, found, replace(found.who, method="terminal"), "cli")
    assert asked.words in ended.err, (asked, ended)
    return Answer(asked.got, ended.err)


async def _by_function(stage: Stage, found: Case, who: Principal, how: str) -> Answer:
    try:
        done = await stage.desk.decide(who, found.held, found.choice, how=how, digest=found.digest, reason=found.reason)
    except DeedboxError as error:
        return Answer(error.code, error.detail)
    return Answer(done.state, "")


async def through(stage: Stage, door: Door, found: Case) -> Answer:
    """Decide through this door."""
    name = found.who.name
    match door:
        case "page":
            return await _by_page(stage, found)
        case "api, session":
            return await _by_api(stage, found, stage.sessions[name])
        case "api, personal key":
            return await _by_api(stage, found, f"personal {name}")
        case "api, service key":
            return await _by_api(stage, found, f"service {name}")
        case "command line":
            return await _by_command(stage, found)
        case "function":
            return await _by_function(stage, found, found.who, "function")


@proves("G-EVERY-DOOR", "G-PERSON-DECIDES")
@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
async def test_every_door_keeps_every_rule(stage: Stage, rule: Rule, door: Door) -> None:
    found = await SETUPS[rule.name](stage)
    before = await stage.desk.traces()
    answer = await through(stage, door, found)
    assert answer.got == rule.at(door), answer.words
    if answer.got in {"approved", "rejected", "pending"}:
        assert await stage.desk.state(found.held) == answer.got
        effects = await stage.desk.database.value("SELECT count(*) FROM deedbox.effect WHERE job_id = %s", found.held.job_id)
        assert effects == (answer.got == "approved")
        return
    assert await stage.desk.traces() == before
    if door not in {SERVICE, "function"} and answer.got not in {"unauthenticated", "invalid_input", "confirmation_required"}:
        # Who is refused reads the same sentence at every door.
        assert (await _by_function(stage, found, found.who, "function")).words in answer.words


def test_every_rule_of_the_table_has_its_case() -> None:
    assert set(SETUPS) == {rule.name for rule in RULES}
