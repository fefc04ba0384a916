"""Every door times every rule: one test, a cell each. The table is tests/doors.py, how each case comes about is
tests/door_cases.py; here are the doors.

A refusal changes nothing anywhere, and says at every door the same sentence.
"""

import asyncio
import html
import re
import socket
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from typing import Any

import httpx2
import pytest
import uvicorn

from deedbox.access import LoginGuard, Passwords, csrf_of, resolve_session
from deedbox.http.app import make_app as make_http
from deedbox.http.deps import HttpDeps
from deedbox.intake.submit import Intake
from deedbox.model.errors import DeedboxError
from deedbox.model.identity import Principal
from deedbox.operate.alerts import Alerts
from deedbox.operate.lanes import Lanes
from deedbox.operate.policy import Policies
from deedbox.operate.rounds import Rounds
from deedbox.operate.targets import Targets
from deedbox.operate.verbs import Verbs
from deedbox.operate.views import Views
from deedbox.web import WebDeps
from deedbox.web import routes as web_routes
from deedbox.web.headings import HEADINGS
from tests.database import fresh_database
from tests.decisions import decisions_on
from tests.door_cases import OTHER_TENANT, SETUPS, Case, Stage
from tests.doors import DOORS, RULES, SERVICE, Door, Rule
from tests.guarantees import proves
from tests.servers.commands import PASSWORD, Cli

pytestmark = pytest.mark.anyio
TOKENS = re.compile(r"(personal|service) (.+)")


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
                targets=Targets(desk.pool, desk.app.connectors),
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
