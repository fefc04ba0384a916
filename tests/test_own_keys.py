"""Personal keys, rotation, sessions that are listed and ended, and services that call for a person."""

from collections.abc import AsyncIterator
from uuid import UUID

import pytest
from pydantic import BaseModel

from deedbox.access import (
    add_key,
    add_tenant,
    add_user,
    disable_user,
    grant_roles,
    list_keys,
    list_sessions,
    mint_personal_key,
    resolve_key,
    resolve_session,
    rotate_key,
    withdraw_roles,
)
from deedbox.connectors import Http
from deedbox.extend.context import Context
from deedbox.extend.registry import App
from deedbox.intake.child import ChildIntake
from deedbox.model.errors import DeedboxError
from deedbox.model.identity import DECIDE_SCOPE, VERBS
from deedbox.model.policy import allow
from tests.database import TestDatabase
from tests.guarantees import proves
from tests.servers.console import field_of
from tests.servers.installed import PASSWORD, House, house

pytestmark = pytest.mark.anyio
ON_BEHALF = "Deedbox-On-Behalf-Of"
PATH = "/api/actions/note_thing/jobs"


class Note(BaseModel):
    text: str = ""


def desk() -> App:
    app = App(connectors=[Http()])

    @app.action(roles=["operator", "lead"], policy=allow(), key="new")
    async def note_thing(_ctx: Context, note: Note) -> Note:
        """Note a thing."""
        return note

    return app


@pytest.fixture
async def site(database: TestDatabase) -> AsyncIterator[House]:
    async with house(database, desk()) as running:
        yield running


# Personal keys -----------------------------------------------------------------------------------------------------------


@proves("G-PERSONAL-KEY")
async def test_a_personal_key_is_made_in_a_session_and_can_decide_but_nothing_else(site: House):
    await site.person("Ada", "admin")
    async with site.api(await site.session("Ada")) as session:
        answer = await session.post("/api/keys", json={"label": "tool", "expires_s": 3600})
        assert answer.status_code == 201
        assert answer.headers["cache-control"] == "no-store"
        made = answer.json()
        listed = (await session.get("/api/keys")).json()["keys"]
        assert [one["label"] for one in listed] == ["tool"]
        assert made["key"] not in str(listed)
    async with site.api(made["key"]) as key:
        me = (await key.get("/api/me")).json()
        assert (me["kind"], me["method"], me["name"]) == ("person", "personal_key", "Ada")
        assert me["verbs"] == [verb for verb in VERBS if verb in DECIDE_SCOPE]
        assert me["authenticated_s_ago"] is None
        # It makes no further key, ends no session, and submits nothing.
        assert (await key.post("/api/keys", json={})).json()["code"] == "person_required"
        assert (await key.get("/api/sessions")).status_code == 403
        assert (await key.delete("/api/sessions")).status_code == 403
        assert (await key.post(PATH, json={"text": "x"})).status_code == 403
        assert (await key.put("/api/switch", json={"on": True, "reason": "it opens"})).status_code == 200
        lane = await key.put("/api/lanes/actions/note_thing", json={"limit": 1, "reason": "x"})
        assert lane.status_code in {200, 404}
        await withdraw_roles(site.installation.pool, "default", "Ada", ["admin"])
        site.installation.keys.forget()
        assert (await key.get("/api/me")).json()["verbs"] == []
    (entry,) = await site.told("mint_key")
    assert entry[1:4] == ("Ada", "api", "session")
    await site.database.shift_clock(3601)
    assert await resolve_key(site.installation.pool, made["key"]) is None


@proves("G-PERSONAL-KEY")
async def test_a_personal_key_lives_eight_hours_at_most_and_dies_with_its_person(site: House):
    pool, ids = site.installation.pool, site.installation.ids
    await site.person("Ada", "manager")
    session = await resolve_session(pool, await site.session("Ada"))
    assert session is not None
    assert session.principal.is_fresh_session
    for wrong in (0, 59, 8 * 3600 + 1, float("inf"), float("nan")):
        with pytest.raises(DeedboxError):
            await mint_personal_key(pool, ids, session.principal, "", wrong, door="api")
    key = (await mint_personal_key(pool, ids, session.principal, "", door="api")).key
    holder = await resolve_key(pool, key)
    assert holder is not None
    assert not holder.is_fresh_session
    with pytest.raises(DeedboxError, match="another"):
        await mint_personal_key(pool, ids, holder, "", door="api")
    for _ in range(9):
        await mint_personal_key(pool, ids, session.principal, "", door="api")
    with pytest.raises(DeedboxError, match="live already"):
        await mint_personal_key(pool, ids, session.principal, "", door="api")
    assert await disable_user(pool, "default", "Ada")
    assert await resolve_key(pool, key) is None
    # The database itself takes no longer one.
    with pytest.raises(Exception, match="api_key_personal"):
        await site.database.rows("UPDATE deedbox.api_key SET expires_at = created_at + interval '9 hours'")


@proves("G-PERSONAL-KEY")
async def test_nobody_ends_a_key_of_somebody_else(site: House):
    for name in ("Ada", "Bo"):
        await site.person(name, "manager")
    async with site.api(await site.session("Ada")) as ada, site.api(await site.session("Bo")) as bo:
        made = (await ada.post("/api/keys", json={})).json()
        where = f"/api/keys/{made['key_id']}"
        assert (await bo.delete(where)).status_code == 404
        assert (await ada.delete(where)).status_code == 200
        assert (await ada.delete(where)).status_code == 404
    assert await resolve_key(site.installation.pool, made["key"]) is None


async def test_the_accounts_page_makes_and_ends_keys_and_sessions(site: House):
    await site.person("Ada", "manager")
    async with site.browser() as client, site.browser() as second:
        for one in (client, second):
            form = {"csrf": field_of((await one.get("/login")).text, "csrf"), "next": "/account", "name": "Ada"}
            answer = await one.post("/login", data={**form, "password": PASSWORD})
            assert answer.headers["location"] == "/account"
        page = await client.get("/account")
        csrf = field_of(page.text, "csrf")
        assert page.text.count("Another session") == 1
        made = await client.post("/account/keys", data={"csrf": csrf, "hours": "1", "label": "<b>tool</b>"})
        assert made.status_code == 200
        assert "<b>tool</b>" not in made.text
        key = made.text.partition('<code class="secret">')[2].partition("<")[0]
        assert await resolve_key(site.installation.pool, key) is not None
        assert key not in (await client.get("/account")).text
        (line,) = await list_keys(site.installation.pool, "default")
        assert (await client.post(f"/account/keys/{line.key_id}", data={"csrf": csrf})).status_code == 303
        assert await resolve_key(site.installation.pool, key) is None
        for one in await list_sessions(site.installation.pool, "default", "Ada"):
            answer = await client.post("/account/sessions", data={"csrf": csrf, "session": str(one.session_id)})
            assert answer.status_code == 303
            if answer.headers["location"] == "/login":
                break
        assert (await client.get("/account")).headers["location"].startswith("/login")
        answer = await second.get("/account")
        if answer.status_code == 200:
            csrf = field_of(answer.text, "csrf")
            assert (await second.post("/account/sessions", data={"csrf": csrf, "session": "all"})).status_code == 303
        assert (await second.get("/account")).headers["location"].startswith("/login")
    assert await list_sessions(site.installation.pool, "default", "Ada") == []


async def test_sessions_are_listed_and_ended_over_the_api(site: House):
    for name in ("Ada", "Bo"):
        await site.person(name, "viewer")
    tokens = [await site.session("Ada") for _ in range(3)]
    bo = await site.session("Bo")
    async with site.api(tokens[0]) as ada, site.api(bo) as other:
        listed = (await ada.get("/api/sessions")).json()["sessions"]
        assert len(listed) == 3
        assert {one["method"] for one in listed} == {"password"}
        assert not [token for token in tokens if token in str(listed)]
        last = listed[0]["session_id"]
        assert (await other.delete(f"/api/sessions/{last}")).status_code == 404
        assert (await ada.delete(f"/api/sessions/{last}")).json() == {"ended": 1}
        assert (await ada.delete("/api/sessions")).json() == {"ended": 2}
        assert (await ada.get("/api/me")).status_code == 401
        assert (await other.get("/api/me")).status_code == 200
    assert [entry[1:4] for entry in await site.told("end_sessions")] == [("Ada", "api", "session")] * 2


# Rotation ----------------------------------------------------------------------------------------------------------------


@proves("G-KEY-ROTATION")
async def test_a_rotated_key_lives_for_the_overlap_and_its_successor_may_do_the_same(site: House):
    pool, ids = site.installation.pool, site.installation.ids
    old = await add_key(pool, ids, "default", "shop", ["operator"], "flow", 90 * 86400, acts_for_others=True)
    done = await rotate_key(pool, ids, "default", "flow", 3600)
    before, after = await resolve_key(pool, old), await resolve_key(pool, done.key)
    assert before is not None
    assert before == after
    lines = {line.key_id: line for line in await list_keys(pool, "default")}
    assert lines[done.old_key_id].replaced_by == done.key_id
    assert {line.label for line in lines.values()} == {"flow"}
    assert lines[done.key_id].acts_for_others
    assert await site.database.value(
        "SELECT expires_at > deedbox.clock() + interval '89 days' FROM deedbox.api_key WHERE key_id = %s", done.key_id
    )
    # The label means the newest from now on, and the old one is not rotated twice.
    again = await rotate_key(pool, ids, "default", "flow", 0)
    assert again.old_key_id == done.key_id
    assert await resolve_key(pool, done.key) is None
    assert await resolve_key(pool, old) is not None
    await site.database.shift_clock(3601)
    assert await resolve_key(pool, old) is None
    assert await resolve_key(pool, again.key) is not None
    with pytest.raises(DeedboxError, match="No living key"):
        await rotate_key(pool, ids, "default", str(done.old_key_id), 60)
    with pytest.raises(DeedboxError, match="No living key"):
        await rotate_key(pool, ids, "other", "flow", 60)
    await add_key(pool, ids, "default", "shop", ["operator"], "flow")
    with pytest.raises(DeedboxError, match="2 living keys"):
        await rotate_key(pool, ids, "default", "flow", 60)
    for wrong in (-1.0, float("nan"), float("inf")):
        with pytest.raises(DeedboxError, match="overlap"):
            await rotate_key(pool, ids, "default", str(again.key_id), wrong)
    assert len(await site.told("rotate_key")) == 2


@proves("G-KEY-ROTATION")
async def test_a_rotation_does_not_prolong_a_key_that_ends_before_the_overlap(site: House):
    pool, ids = site.installation.pool, site.installation.ids
    old = await add_key(pool, ids, "default", "shop", ["operator"], "flow", 60)
    await rotate_key(pool, ids, "default", "flow", 86400)
    await site.database.shift_clock(61)
    assert await resolve_key(pool, old) is None


# On behalf of ------------------------------------------------------------------------------------------------------------


async def agent(site: House, *roles: str, acts: bool = True) -> str:
    pool, ids = site.installation.pool, site.installation.ids
    return await add_key(pool, ids, "default", "agent", roles, "", acts_for_others=acts)


@proves("G-ON-BEHALF")
async def test_what_counts_is_the_smaller_of_both_rights_and_both_names_are_kept(site: House):
    ada = await site.person("Ada", "operator", "manager")
    key = await agent(site, "operator")
    async with site.api(key, Deedbox_On_Behalf_Of="Ada") as both, site.api(key) as alone:
        me = (await both.get("/api/me")).json()
        assert (me["name"], me["kind"], me["through"]) == ("Ada", "service", "agent")
        assert me["roles"] == ["operator"]
        assert "decide" not in me["verbs"]
        answer = await both.post(PATH, json={"text": "x"}, headers={"Idempotency-Key": "k"})
        assert answer.status_code == 202
        job = answer.json()["job_id"]
        service = await site.database.value("SELECT principal_id FROM deedbox.principal WHERE name = 'agent'")
        rows = await site.database.rows("SELECT subject, through, role FROM deedbox.job")
        assert rows == [(UUID(ada), service, "operator")]
        # Seen by the person and in the person's name, and by no other call of the service.
        assert (await both.get(f"/api/jobs/{job}")).status_code == 200
        assert (await alone.get(f"/api/jobs/{job}")).status_code == 404
        async with site.api(await site.session("Ada")) as person:
            assert (await person.get(f"/api/jobs/{job}")).status_code == 200
            own = (await person.post(PATH, json={"text": "y"}, headers={"Idempotency-Key": "k2"})).json()["job_id"]
        # What she asked for by herself is not the service's to see.
        assert (await both.get(f"/api/jobs/{own}")).status_code == 404
        assert [one["job_id"] for one in (await both.get("/api/jobs")).json()["jobs"]] == [job]
        assert (await both.post(f"/api/jobs/{own}/cancel", json={})).status_code == 404
        assert (await both.post(f"/api/jobs/{job}/cancel", json={"reason": "enough"})).status_code == 200
        assert [entry[1] for entry in await site.told("cancel")] == ["Ada (through agent)"]
        # A refused call and a replay name both too.
        assert (await both.post(PATH, json={"text": 7})).status_code == 400
        calls = await site.database.rows("SELECT subject, through FROM deedbox.call")
        assert calls == [(UUID(ada), service)]
        timeline = await site.installation.views.timeline(
            (await resolve_session(site.installation.pool, await site.session("Ada"))).principal,  # pyright: ignore[reportOptionalMemberAccess] -- opened in this line
            UUID(job),
        )
        assert timeline is not None
        assert (timeline[0].detail["by"], timeline[0].detail["through"]) == ("Ada", "agent")


@proves("G-ON-BEHALF")
async def test_neither_side_lends_the_other_a_right(site: House):
    await site.person("Vi", "viewer")
    await site.person("Max", "manager")
    key = await agent(site, "admin", "operator")
    async with site.api(key, Deedbox_On_Behalf_Of="Vi") as vi, site.api(key, Deedbox_On_Behalf_Of="Max") as boss:
        assert (await vi.get("/api/me")).json()["verbs"] == ["read"]
        assert (await vi.post(PATH, json={"text": "x"})).status_code == 403
        assert (await vi.put("/api/switch", json={"on": False, "reason": "x"})).status_code == 403
        # Max may submit by `manager` and the service by `operator`: the verb is both's, the role that the action names is not.
        assert "submit" in (await boss.get("/api/me")).json()["verbs"]
        assert (await boss.post(PATH, json={"text": "x"})).status_code == 403


@proves("G-ON-BEHALF", "G-PERSON-DECIDES")
async def test_a_person_who_is_named_decides_nothing(site: House):
    await site.person("Ada", "admin", "manager", "operator")
    key = await agent(site, "admin", "manager", "operator")
    nothing = "0197f2a8-0000-7000-8000-0000000000ff"
    async with site.api(key, Deedbox_On_Behalf_Of="Ada") as both:
        decision = {"decision": "approve", "digest": "0" * 64}
        assert (await both.post(f"/api/approvals/{nothing}/decision", json=decision)).json()["code"] == "person_required"
        assert (await both.put("/api/switch", json={"on": True, "reason": "x"})).json()["code"] == "person_required"
        assert (await both.post(f"/api/effects/{nothing}/confirm", json={})).json()["code"] == "person_required"
        assert (await both.post("/api/keys", json={})).json()["code"] == "person_required"
        assert (await both.delete("/api/sessions")).json()["code"] == "person_required"


@proves("G-ON-BEHALF")
async def test_whom_a_key_may_not_name_is_nobody(site: House):
    pool, ids = site.installation.pool, site.installation.ids
    await site.person("Ada", "operator")
    await site.person("Gone", "operator")
    await add_tenant(pool, "north")
    await add_user(pool, ids, "north", "Nora", ["operator"], PASSWORD)
    await add_key(pool, ids, "default", "another", ["operator"], "")
    key = await agent(site, "operator")
    plain = await add_key(pool, ids, "default", "plain", ["operator"], "")
    async with site.api(key, Deedbox_On_Behalf_Of="Gone") as client:
        assert (await client.get("/api/me")).status_code == 200
    await disable_user(pool, "default", "Gone")
    site.installation.keys.forget()
    answers: list[tuple[int, str]] = []
    for bearer, name in (
        (key, "Nobody"),
        (key, "Gone"),
        (key, "Nora"),
        (key, "another"),
        (key, "agent"),
        (key, ""),
        (key, "x" * 201),
        (plain, "Ada"),
        (await site.session("Ada"), "Ada"),
    ):
        async with site.api(bearer, Deedbox_On_Behalf_Of=name) as client:
            for path in ("/api/me", "/api/jobs"):
                answer = await client.get(path)
                answers.append((answer.status_code, answer.text))
    assert len(set(answers)) == 1
    assert answers[0][0] == 403
    async with site.api(key) as client:
        twice = await client.get("/api/me", headers=[(ON_BEHALF, "Ada"), (ON_BEHALF, "Ada")])
        assert twice.status_code == 400
    # A name is UTF-8, in whatever spelling.
    await site.person("Zoë", "operator")
    async with site.api(key) as client:
        sent = {ON_BEHALF: "Zoe\u0308".encode()}
        assert (await client.get("/api/me", headers=sent)).json()["name"] == "Zoë"  # pyright: ignore[reportArgumentType] -- bytes are sent as they are


@proves("G-ON-BEHALF")
async def test_a_right_that_is_taken_from_either_counts_within_two_seconds(site: House):
    pool = site.installation.pool
    await site.person("Ada", "operator")
    key = await agent(site, "operator", "viewer")
    async with site.api(key, Deedbox_On_Behalf_Of="Ada") as both:
        assert (await both.get("/api/me")).json()["roles"] == ["operator"]
        await grant_roles(pool, "default", "Ada", ["viewer"])
        await withdraw_roles(pool, "default", "agent", ["operator"])
        site.installation.keys.forget()
        assert (await both.get("/api/me")).json()["roles"] == ["viewer"]


@proves("G-ON-BEHALF")
async def test_a_job_that_an_effect_makes_is_bound_by_both_too(site: House):
    pool, installation = site.installation.pool, site.installation
    await site.person("Ada", "operator")
    key = await agent(site, "operator")
    child = ChildIntake(pool, installation.app.actions, installation.intake)
    async with site.api(key, Deedbox_On_Behalf_Of="Ada") as both:
        parent = (await both.post(PATH, json={"text": "x"}, headers={"Idempotency-Key": "k"})).json()["job_id"]

    async def made(effect: str) -> str:
        return await child.submit("note_thing", {"text": "y"}, effect_id=effect, parent_job_id=parent, tenant="default")

    first = await made("one")
    rows = await site.database.rows("SELECT subject, through FROM deedbox.job")
    assert len(rows) == 2
    assert len(set(rows)) == 1
    assert await made("one") == first
    await withdraw_roles(pool, "default", "agent", ["operator"])
    with pytest.raises(DeedboxError, match="needs one of these roles"):
        await made("two")
    await grant_roles(pool, "default", "agent", ["operator"])
    await disable_user(pool, "default", "agent")
    with pytest.raises(DeedboxError, match="may not run anything"):
        await made("two")
    assert await site.database.value("SELECT count(*) FROM deedbox.job") == 2
