"""Every route of a real installation says what it needs, and asks for it; a foreign id is an unknown one at every door."""

import re
from collections.abc import AsyncIterator, Iterator
from typing import Any

import httpx2
import pytest
from pydantic import BaseModel
from starlette.routing import Route

from deedbox.access import add_key, add_tenant, add_user, put_role
from deedbox.connectors import Http
from deedbox.extend.context import Context
from deedbox.extend.registry import App
from deedbox.http.routing import Endpoint
from deedbox.intake.request import Request
from deedbox.model.identity import PERMISSIONS, VERBS, Principal, Verb
from deedbox.model.permissions import ROUTES
from deedbox.model.policy import hold
from tests.database import TestDatabase
from tests.guarantees import proves
from tests.servers.console import field_of
from tests.servers.installed import PASSWORD, House, house

pytestmark = pytest.mark.anyio
READS = frozenset({"GET", "HEAD", "OPTIONS"})
NOBODY = "0197f2a8-0000-7000-8000-0000000000ff"


class Note(BaseModel):
    text: str = ""


def desk() -> App:
    app = App(connectors=[Http()])

    @app.action(roles=["operator", "only"], approvers=["manager", "only"], policy=hold(expires="2h"))
    async def post_note(ctx: Context, note: Note) -> Note:
        """Post a note."""
        ctx.effect("http", target="notes", slot="note", payload={"path": "/", "body": {"text": note.text}})
        return note

    return app


@pytest.fixture
async def site(database: TestDatabase) -> AsyncIterator[House]:
    provider = {"name": "corp", "issuer": "https://login.example", "client_id": "deedbox"}
    issuer = {"name": "corp", "issuer": "https://login.example"}
    async with house(database, desk(), oidc=(provider,), bearer=(issuer,)) as running:
        yield running


def routes_of(site: House) -> Iterator[tuple[str, str]]:
    """Method and path of every route that is served, HEAD left out where there is GET."""
    for route in site.asgi.routes:
        assert isinstance(route, Route), route
        endpoint: Any = route.endpoint
        methods = endpoint.methods if isinstance(endpoint, Endpoint) else frozenset(route.methods or ())
        path = re.sub(r"^/static/[0-9a-f]+/", "/static/{hash}/", route.path)
        for method in sorted(methods):
            if not (method == "HEAD" and "GET" in methods):
                yield method, path


@proves("G-PERMISSIONS")
async def test_every_route_says_what_it_needs_and_nothing_is_said_of_what_is_not_there(site: House):
    served = list(routes_of(site))
    assert len(served) == len(set(served))
    assert not [one for one in served if one not in ROUTES], "a route without a declared permission"
    assert not [one for one in ROUTES if one not in served], "a permission of a route that is not served"


def test_what_is_open_says_why():
    for needed in ROUTES.values():
        assert (needed.who == "verb") == (needed.verb is not None)
        assert needed.why or needed.verb


@proves("G-PERMISSIONS")
async def test_the_database_holds_the_table_of_roles_and_gives_what_it_says(site: House):
    rows = await site.database.rows("SELECT role, verbs FROM deedbox.role WHERE built_in")
    assert {str(role): frozenset(verbs) for role, verbs in rows} == PERMISSIONS  # pyright: ignore[reportArgumentType] -- an array
    for role, verbs in PERMISSIONS.items():
        key = await add_key(site.installation.pool, site.installation.ids, "default", f"is-{role}", [role], "")
        async with site.api(key) as client:
            assert (await client.get("/api/me")).json()["verbs"] == [verb for verb in VERBS if verb in verbs]


def at(path: str, given: str = NOBODY) -> str:
    """The path with something in each of its places."""
    for name, value in {"action": "post_note", "lane_id": "1", "verb": "cancel", "provider": "corp"}.items():
        path = path.replace(f"{{{name}}}", value)
    return re.sub(r"\{[a-z_]+\}", given, path)


BODIES: dict[str, Any] = {
    "/api/actions/{action}/jobs": {"text": "x"},
    "/api/jobs/{job_id}/retry": {"reason": "because"},
    "/api/jobs/{job_id}/close": {"reason": "because"},
    "/api/jobs/{job_id}/replacement": {"input": {"text": "y"}, "key": "another", "reason": "because"},
    "/api/approvals/{approval_id}/decision": {"decision": "approve", "digest": "0" * 64},
    "/api/switch": {"on": True, "reason": "because"},
    "/api/lanes/{lane_id}": {"paused": True, "reason": "because"},
    "/api/lanes/actions/{action}": {"limit": 1, "reason": "because"},
    "/api/effects/{effect_id}/{verb}": {"reason": "because"},
    "/api/approvals/{approval_id}/edit": {"digest": "0" * 64, "payloads": {"note": {}}},
    "/api/approvals/{approval_id}/delegate": {"to": "Ada"},
    "/api/delegations": {"to": "Sub", "until": "2999-01-01T00:00:00Z"},
    "/api/alerts/{alert_id}/close": {"reason": "because"},
    "/api/callbacks/replay": {"since": "2026-01-01T00:00:00Z"},
    "/api/callbacks/{target}/enable": {"reason": "because"},
    "/api/targets": {"connector": "http", "target": "notes", "paused": True, "reason": "because"},
    "/api/erasures": {"data_subject": "somebody", "reason": "because"},
    "/api/login": {"name": "x", "password": "y"},
}


async def call(client: httpx2.AsyncClient, method: str, path: str, given: str = NOBODY, key: str = "k") -> httpx2.Response:
    body = BODIES.get(path)
    headers = {"Idempotency-Key": key} if path == "/api/actions/{action}/jobs" else {}
    return await client.request(method, at(path, given), json=body, headers=headers)


@proves("G-PERMISSIONS")
async def test_every_route_of_the_api_asks_who_is_there(site: House):
    await site.person("Ada", "admin")
    cookie = {"Cookie": f"deedbox_session={await site.session('Ada')}"}
    before = await site.database.value("SELECT seq FROM deedbox.audit_head")
    asked = 0
    async with site.api() as client:
        for (method, path), needed in ROUTES.items():
            if needed.who == "open" or not path.startswith(("/api/", "/mcp")):
                continue
            asked += 1
            for sent in ({}, cookie, {"Authorization": "Bearer dbx_nobody"}, {"Authorization": "Basic eDp5"}):
                answer = await client.request(method, at(path), json=BODIES.get(path), headers=sent)
                assert answer.status_code == 401, (method, path, sent, answer.text)
                assert answer.json()["code"] == "unauthenticated"
    assert asked > 20
    assert await site.database.value("SELECT seq FROM deedbox.audit_head") == before


@proves("G-PERMISSIONS")
async def test_every_verb_is_asked_for_by_its_routes(site: House):
    """Whoever may do everything but the verb is refused; the person of that very role is not refused for it."""
    pool, ids = site.installation.pool, site.installation.ids
    verbs = sorted({needed.verb for needed in ROUTES.values() if needed.verb})
    assert set(verbs) <= set(VERBS)
    # One who sees what is to be acted on: an approval and its job, and a lane.
    submitter = await site.person("Sub", "operator")
    operator = Principal(submitter, "default", "Sub", "person", frozenset({"operator"}), "session")
    job = await site.installation.intake.submit(Request(operator, "post_note", {"text": "x"}, "first", "http"))
    for verb in verbs:
        # Turning the switch off takes less than turning it on; what is asked here is the whole of it.
        await put_role(pool, "default", "only", [one for one in VERBS if one != verb])
        name = f"no-{verb}"
        await add_user(pool, ids, "default", name, ["only"], PASSWORD)
        async with site.api(await site.session(name)) as client:
            for (method, path), needed in ROUTES.items():
                if needed.verb != verb or not path.startswith("/api/"):
                    continue
                answer = await call(client, method, path, str(job.job_id), key=name)
                codes = {"permission_denied"} | ({"not_found"} if "{approval_id}" in path else set[str]())
                assert answer.json().get("code") in codes, (method, path, answer.text)
    assert await site.database.value("SELECT count(*) FROM deedbox.job") == 1
    assert await site.database.value("SELECT count(*) FROM deedbox.audit WHERE verb IN ('switch_on', 'switch_off')") == 0


@proves("G-PERMISSIONS", "G-CSRF")
async def test_every_form_of_a_page_is_its_own_and_of_its_session(site: House):
    await site.person("Ada", "admin")
    forms = [path for (method, path), _ in ROUTES.items() if method not in READS and not path.startswith(("/api", "/mcp"))]
    assert len(forms) >= 7
    async with site.browser() as client, site.browser() as other:
        for one in (client, other):
            form = {"csrf": field_of((await one.get("/login")).text, "csrf"), "next": "/", "name": "Ada", "password": PASSWORD}
            assert (await one.post("/login", data=form)).status_code == 303
        await other.get("/login", params={"fresh": "1"})
        theirs = field_of((await other.get("/account")).text, "csrf")
        mine = field_of((await client.get("/account")).text, "csrf")
        before = await site.database.value("SELECT seq FROM deedbox.audit_head")
        for path in forms:
            # From another site, or from a browser that does not say where from: with the right token, and refused.
            for sent in (
                {"Sec-Fetch-Site": "cross-site", "Origin": "https://evil.example"},
                {"Sec-Fetch-Site": "same-site", "Origin": site.url},
                {"Sec-Fetch-Site": "same-origin", "Origin": "https://evil.example"},
                {"Sec-Fetch-Site": "none", "Origin": site.url},
            ):
                answer = await client.post(at(path), data={"csrf": mine, "session": "all"}, headers=sent)
                assert answer.status_code == 403, (path, sent, answer.status_code)
            # From our site, without a token or with another session's.
            for token in ("", theirs, "x"):
                answer = await client.post(
                    at(path), data={"csrf": token, "session": "all", "name": "Ada", "password": PASSWORD}
                )
                assert answer.status_code == 403, (path, token, answer.status_code)
        assert await site.database.value("SELECT seq FROM deedbox.audit_head") == before
        assert (await client.get("/account")).status_code == 200


@proves("G-PERMISSIONS")
async def test_pages_show_nothing_to_nobody(site: House):
    async with site.browser() as client:
        for (method, path), needed in ROUTES.items():
            if method != "GET" or path.startswith("/api") or needed.who == "open":
                continue
            answer = await client.get(at(path))
            leads = answer.status_code == 303 and answer.headers["location"].startswith("/login")
            assert leads or (path == "/approvals/{approval_id}" and "shows nothing more" in answer.text), path


@proves("G-FOREIGN-404")
async def test_a_foreign_id_is_an_unknown_one_at_every_door(site: House):
    """Every route with an id, by somebody who may do everything in his tenant: another tenant's id answers as no id at all."""
    pool, ids, database = site.installation.pool, site.installation.ids, site.database
    await add_tenant(pool, "north")
    await add_user(pool, ids, "north", "Nora", ["admin"], PASSWORD)
    nora = await database.value("SELECT principal_id FROM deedbox.principal WHERE name = 'Nora'")
    theirs = Principal(str(nora), "north", "Nora", "person", frozenset({"admin", "operator"}), "session")
    job = await site.installation.intake.submit(Request(theirs, "post_note", {"text": "x"}, "first", "http"))
    lane = await database.value("SELECT lane_id FROM deedbox.lane WHERE tenant = 'north'")
    approval, effect, document, key = (ids.new() for _ in range(4))
    await database.rows(
        "INSERT INTO deedbox.approval (approval_id, job_id, tenant, action, purpose, group_name, state, digest, effect_digests,"
        " policy_version, rule, audience, requested_at, expires_at) VALUES (%s, %s, 'north', 'post_note', 'effects', 'all',"
        " 'pending', sha256('x'), '{}', 'v', 'hold', '{manager}', deedbox.clock(), deedbox.clock() + interval '1 day')",
        approval,
        job.job_id,
    )
    await database.rows("INSERT INTO deedbox.document (tenant, sha256, size, content) VALUES ('north', sha256('x'), 1, 'x')")
    await database.rows(
        "INSERT INTO deedbox.job_document (document_id, job_id, tenant, sha256, name, media_type)"
        " VALUES (%s, %s, 'north', sha256('x'), 'x', 'text/plain')",
        document,
        job.job_id,
    )
    await database.rows(
        "INSERT INTO deedbox.api_key (key_sha256, key_id, tenant, principal_id, kind, label, expires_at)"
        " VALUES (sha256('k'), %s, 'north', %s, 'personal', 'x', deedbox.clock() + interval '1 hour')",
        key,
        nora,
    )
    await database.rows(
        "INSERT INTO deedbox.session (session_sha256, principal_id, method, csrf_sha256, expires_at)"
        " VALUES (sha256('s'), %s, 'password', sha256('c'), deedbox.clock() + interval '1 hour')",
        nora,
    )
    session = await database.value("SELECT session_id FROM deedbox.session WHERE session_sha256 = sha256('s')")
    foreign = {
        "job_id": job.job_id,
        "approval_id": approval,
        "effect_id": effect,
        "document_id": document,
        "key_id": key,
        "session_id": session,
        "lane_id": lane,
    }
    await put_role(pool, "default", "only", VERBS)
    await site.person("Ada", "admin", "manager", "operator", "only")
    service = await add_key(pool, ids, "default", "svc", ["admin", "operator"], "")
    seen: set[str] = set()
    async with site.browser() as page:
        form = {"csrf": field_of((await page.get("/login")).text, "csrf"), "next": "/", "name": "Ada", "password": PASSWORD}
        await page.post("/login", data=form)
        csrf = field_of((await page.get("/account")).text, "csrf")
        async with site.api(await site.session("Ada")) as ada, site.api(service) as svc:
            for method, path in ROUTES:
                named = [name for name in foreign if f"{{{name}}}" in path]
                if not named or method == "OPTIONS":
                    continue
                seen |= set(named)
                other = "999999" if named == ["lane_id"] else NOBODY
                places = [at(path.replace(f"{{{named[0]}}}", str(one))) for one in (foreign[named[0]], other)]
                for client in (ada, svc) if path.startswith("/api") else (page,):
                    answers = [
                        await client.request(method, place, json=BODIES.get(path))
                        if client is not page or method == "GET"
                        else await page.post(
                            place, data={"csrf": csrf, "decision": "approve", "digest": "0" * 64, "session": str(session)}
                        )
                        for place in places
                    ]
                    bodies = [
                        answer.text.replace(place.rpartition("/")[2], "ID")
                        for answer, place in zip(answers, places, strict=True)
                    ]
                    assert answers[0].status_code == answers[1].status_code, (method, path, bodies)
                    assert answers[0].status_code >= 400, (method, path, bodies)
                    assert bodies[0] == bodies[1], (method, path)
                    volatile = {"date", "etag"}
                    heads = [{k: v for k, v in answer.headers.items() if k not in volatile} for answer in answers]
                    assert heads[0] == heads[1], (method, path)
    assert seen == set(foreign)
    assert await database.value("SELECT count(*) FROM deedbox.audit WHERE tenant = 'north' AND actor = 'Ada'") == 0
    assert await database.value("SELECT revoked_at FROM deedbox.session WHERE session_sha256 = sha256('s')") is None


@proves("G-PERMISSIONS")
async def test_a_role_of_ones_own_may_do_what_it_says_and_no_role_is_one_that_nobody_made(site: House):
    from deedbox.access import grant_roles, remove_role
    from deedbox.model.errors import DeedboxError

    pool, ids = site.installation.pool, site.installation.ids
    for wrong in ("nobody_made_this",):
        with pytest.raises(DeedboxError, match="roles add"):
            await add_user(pool, ids, "default", "Bo", [wrong], PASSWORD)
        with pytest.raises(DeedboxError, match="roles add"):
            await add_key(pool, ids, "default", "svc", [wrong], "")
    assert await put_role(pool, "default", "auditor", ["read"])
    await site.person("Bo", "auditor")
    with pytest.raises(DeedboxError, match="roles add"):
        await grant_roles(pool, "default", "Bo", ["nobody_made_this"])
    async with site.api(await site.session("Bo")) as client:
        assert (await client.get("/api/me")).json()["verbs"] == ["read"]
        assert (await client.get("/api/effects")).status_code == 200
        # What it may do changes from the next request on.
        assert not await put_role(pool, "default", "auditor", [])
        assert (await client.get("/api/effects")).status_code == 403
    assert not await remove_role(pool, "default", "auditor")
    for built_in in PERMISSIONS:
        with pytest.raises(DeedboxError, match="built in"):
            await put_role(pool, "default", built_in, ["administer"])
        assert not await remove_role(pool, "default", built_in)
    wrong_verb: list[Verb | str] = ["fly"]
    with pytest.raises(DeedboxError, match="fly"):
        await put_role(pool, "default", "pilot", [str(verb) for verb in wrong_verb])
    entries = await site.told("put_role")
    assert [entry[4] for entry in entries] == [{"before": None, "after": ["read"]}, {"before": ["read"], "after": []}]
