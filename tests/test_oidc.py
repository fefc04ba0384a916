"""Logging in at an OpenID provider: what opens a session, what never does, and what groups give and take."""

import asyncio
import json
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlencode

import httpx2
import pytest
from pydantic import ValidationError

from deedbox.access import add_tenant, disable_user, enable_user, grant_roles, list_sessions
from deedbox.settings import Settings
from deedbox.wiring import StartError
from tests.database import TestDatabase
from tests.guarantees import proves
from tests.servers.console import field_of
from tests.servers.house import PASSWORD, House, house
from tests.servers.openid_provider import (
    CLIENT_ID,
    CLIENT_SECRET,
    HostileProvider,
    real_provider,
    signed_with_the_public_key,
    unsigned,
)

pytestmark = pytest.mark.anyio
ROLES = {"desk": ["manager", "viewer"], "ops": ["operator"]}


def settings(**given: Any) -> Settings:
    """Settings as the environment gives them, where nothing has its type yet."""
    return Settings(**given)


async def seconds(database: TestDatabase) -> float:
    return float(str(await database.value("SELECT extract(epoch FROM deedbox.clock())::float8")))


def config(issuer: str, **changed: Any) -> dict[str, Any]:
    return {
        "name": "corp",
        "title": "the company",
        "issuer": issuer,
        "client_id": CLIENT_ID,
        "client_secret": CLIENT_SECRET,
        "roles": ROLES,
        **changed,
    }


@asynccontextmanager
async def served(database: TestDatabase, *configs: dict[str, Any], **settings: Any) -> AsyncGenerator[House]:
    hosts = frozenset({"127.0.0.1"})
    async with house(database, oidc=configs, egress_allow=hosts, **settings) as running:
        yield running


async def leave(client: httpx2.AsyncClient, name: str = "corp", *, next_: str = "/", fresh: bool = False) -> str:
    """Press the button: where the browser is sent."""
    page = await client.get("/login", params={"next": next_, **({"fresh": "1"} if fresh else {})})
    form = {"csrf": field_of(page.text, "csrf"), "next": field_of(page.text, "next"), **({"fresh": "1"} if fresh else {})}
    answer = await client.post(f"/login/{name}", data=form)
    assert answer.status_code == 200, answer.text
    return answer.headers["refresh"].removeprefix("0; url=")


async def back(client: httpx2.AsyncClient, params: Mapping[str, str], name: str = "corp") -> httpx2.Response:
    return await client.get(f"/login/{name}/callback?{urlencode(params)}", headers={"Sec-Fetch-Site": "cross-site"})


async def log_in(
    client: httpx2.AsyncClient, provider: HostileProvider, *, next_: str = "/", fresh: bool = False
) -> httpx2.Response:
    return await back(client, provider.authorize(await leave(client, next_=next_, fresh=fresh)))


async def roles_of(site: House, name: str) -> set[str]:
    rows = await site.database.rows(
        'SELECT g.role FROM deedbox."grant" g JOIN deedbox.principal p USING (principal_id) WHERE p.name = %s', name
    )
    return {str(row[0]) for row in rows}


async def refused(site: House, answer: httpx2.Response, why: str) -> None:
    """One page for every reason, no session, nobody made, no role given; the journal has the reason."""
    assert answer.status_code == 403, answer.text
    assert "You are not logged in" in answer.text
    assert "deedbox_session" not in answer.headers.get("set-cookie", "")
    assert await site.database.value("SELECT count(*) FROM deedbox.session") == 0
    assert await site.database.value("SELECT count(*) FROM deedbox.identity") == 0
    assert await site.database.value("SELECT count(*) FROM deedbox.principal") == 0
    (entry,) = await site.told("login_refused")
    assert (entry[1], entry[2], entry[3], entry[4]["why"]) == ("nobody", "page", "oidc", why)


@proves("G-OIDC")
async def test_a_login_opens_a_session_with_the_roles_of_the_groups(database: TestDatabase):
    with HostileProvider(await seconds(database), groups=["desk", "nobody knows this one"]) as provider:
        async with served(database, config(provider.issuer)) as site, site.browser() as client:
            page = await client.get("/login")
            assert "Log in with the company" in page.text
            assert 'name="password"' in page.text
            approval = "/approvals/0197f2a8-0000-7000-8000-00000000a001"
            answer = await log_in(client, provider, next_=approval)
            assert answer.status_code == 303
            assert answer.headers["location"] == approval
            cookie = answer.headers.get_list("set-cookie")[0].lower()
            assert "httponly" in cookie
            assert "samesite=lax" in cookie
            assert (await client.get("/")).status_code == 200
            assert await roles_of(site, "ada") == {"manager", "viewer"}
            (entry,) = await site.told("login")
            assert entry[:4] == ("login", "ada", "page", "oidc")
            assert entry[4]["roles_given"] == ["manager", "viewer"]
            assert entry[4]["person_made"] is True
            (session,) = await list_sessions(site.installation.pool, "default", "ada")
            assert (session.method, session.peer) == ("oidc", "127.0.0.1")
            assert session.authenticated_at is not None
            # Nothing that could be used again is kept: neither state, nonce, code nor token.
            assert await database.value("SELECT count(*) FROM deedbox.provider_login") == 0


async def test_next_leads_to_our_own_pages_alone(database: TestDatabase):
    with HostileProvider(await seconds(database)) as provider:
        async with served(database, config(provider.issuer)) as site:
            for wanted in ("https://evil.example/", "//evil.example/", "/\\evil.example", "/login", "javascript:alert(1)"):
                async with site.browser() as client:
                    page = await client.get("/login")
                    form = {"csrf": field_of(page.text, "csrf"), "next": wanted}
                    url = (await client.post("/login/corp", data=form)).headers["refresh"].removeprefix("0; url=")
                    assert (await back(client, provider.authorize(url))).headers["location"] == "/"


def _without_a_key_for_it(provider: HostileProvider, claims: dict[str, Any]) -> str:
    return provider.signed(claims, key=provider.foreign, kid="two")


def _by_a_foreign_key(provider: HostileProvider, claims: dict[str, Any]) -> str:
    return provider.signed(claims, key=provider.foreign)


def _cut(provider: HostileProvider, claims: dict[str, Any]) -> str:
    return provider.signed(claims)[:-4] + "AAAA"


MISDEEDS: dict[str, tuple[dict[str, Any], str]] = {
    "another nonce": ({"more": {"nonce": "another"}}, "nonce"),
    "no nonce": ({"without": ("nonce",)}, "nonce"),
    "for somebody else": ({"more": {"aud": "another client"}}, "aud"),
    "for us and others, from nobody": ({"more": {"aud": [CLIENT_ID, "another"]}}, "azp"),
    "for us and others, from another": ({"more": {"aud": [CLIENT_ID, "another"], "azp": "another"}}, "azp"),
    "from another issuer": ({"more": {"iss": "https://elsewhere.example"}}, "iss"),
    "from nobody": ({"without": ("iss",)}, "iss"),
    "of nobody": ({"without": ("sub",)}, "sub"),
    "of an empty subject": ({"more": {"sub": " "}}, "sub"),
    "of a subject that is a number": ({"more": {"sub": 7}}, "sub"),
    "over": ({"more": {"exp": 1}}, "exp"),
    "without an end": ({"without": ("exp",)}, "exp"),
    "with an end that is not a number": ({"more": {"exp": float("nan")}}, "exp"),
    "from the future": ({"more": {"iat": 99_999_999_999}}, "iat"),
    "not yet": ({"more": {"nbf": 99_999_999_999}}, "nbf"),
    "of another access token": ({"more": {"at_hash": "AAAA"}}, "at_hash"),
    "unsigned": ({"spoil_token": unsigned}, "signature"),
    "signed with the public key as a secret": ({"spoil_token": signed_with_the_public_key}, "signature"),
    "signed by a foreign key under a known name": ({"spoil_token": _by_a_foreign_key}, "signature"),
    "signed by a key that is not published": ({"spoil_token": _without_a_key_for_it}, "signature"),
    "with a broken signature": ({"spoil_token": _cut}, "signature"),
    "no token at all": ({"spoil_answer": {"id_token": None}}, "id_token"),
    "something else than a token": ({"spoil_answer": {"id_token": "a.b.c"}}, "signature"),
}


@proves("G-OIDC")
@pytest.mark.parametrize("misdeed", MISDEEDS)
async def test_what_a_good_provider_never_does_is_refused_with_nothing_changed(database: TestDatabase, misdeed: str):
    spoiled, why = MISDEEDS[misdeed]
    with HostileProvider(await seconds(database), groups=["desk"], **spoiled) as provider:
        async with served(database, config(provider.issuer)) as site, site.browser() as client:
            await refused(site, await log_in(client, provider), why)


async def test_a_shared_secret_that_is_published_as_a_key_signs_nothing(database: TestDatabase):
    with HostileProvider(await seconds(database), spoil_token=signed_with_the_public_key) as provider:
        provider.keys = [{"kty": "oct", "kid": "one", "k": "c2VjcmV0"}]
        async with served(database, config(provider.issuer)) as site, site.browser() as client:
            await refused(site, await log_in(client, provider), "jwks")


@proves("G-OIDC")
async def test_a_state_answers_once_to_its_own_browser_and_provider_for_ten_minutes(database: TestDatabase):
    with HostileProvider(await seconds(database)) as provider, HostileProvider(await seconds(database)) as other:
        configs = (config(provider.issuer), config(other.issuer, name="other"))
        async with served(database, *configs) as site, site.browser() as client, site.browser() as thief:
            params = provider.authorize(await leave(client))
            # Another browser, with a login of its own under way or none.
            await leave(thief)
            for stranger in (thief, site.browser()):
                assert (await back(stranger, params)).status_code == 403
            # Another provider's address, a state that nobody made, none, two, and one without its code.
            assert (await back(client, params, "other")).status_code == 403
            assert (await back(client, {**params, "state": "x"})).status_code == 403
            assert (await back(client, {"code": params["code"]})).status_code == 403
            twice = await client.get(f"/login/corp/callback?{urlencode(params)}&state=x")
            assert twice.status_code == 403
            head = await client.head(f"/login/corp/callback?{urlencode(params)}")
            assert head.status_code == 204
            assert "set-cookie" not in head.headers
            assert await database.value("SELECT count(*) FROM deedbox.session") == 0
            # What was looked at, stolen and mistaken is still good for whom it was made.
            assert (await back(client, params)).status_code == 303
            assert await database.value("SELECT count(*) FROM deedbox.session") == 1
            again = await back(client, params)
            assert again.status_code == 403
            assert await database.value("SELECT count(*) FROM deedbox.session") == 1
            assert {entry[4]["why"] for entry in await site.told("login_refused")} == {"state"}
        async with served(database, config(provider.issuer)) as site, site.browser() as client:
            late = provider.authorize(await leave(client))
            await database.shift_clock(601)
            assert (await back(client, late)).status_code == 403
            assert (await site.told("login_refused"))[-1][4]["why"] == "expired"


async def test_two_who_bring_one_code_back_at_once_open_one_session(database: TestDatabase):
    with HostileProvider(await seconds(database)) as provider:
        async with served(database, config(provider.issuer)) as site, site.browser() as client:
            params = provider.authorize(await leave(client))
            answers = await asyncio.gather(*(back(client, params) for _ in range(4)))
            assert sorted(answer.status_code for answer in answers) == [303, 403, 403, 403]
            assert await database.value("SELECT count(*) FROM deedbox.session") == 1


@pytest.mark.parametrize("names_itself", [False, True])
async def test_an_answer_that_names_another_issuer_is_a_mix_up(database: TestDatabase, names_itself: bool):
    spoiled = {"authorization_response_iss_parameter_supported": names_itself}
    with HostileProvider(await seconds(database), spoil_metadata=spoiled) as provider:
        async with served(database, config(provider.issuer)) as site:
            async with site.browser() as client:
                params = {**provider.authorize(await leave(client)), "iss": "https://elsewhere.example"}
                await refused(site, await back(client, params), "iss_parameter")
            async with site.browser() as client:
                # Who says that it names itself and does not is not who answered.
                answer = await log_in(client, provider)
                assert answer.status_code == (403 if names_itself else 303)
            async with site.browser() as client:
                params = {**provider.authorize(await leave(client)), "iss": provider.issuer}
                assert (await back(client, params)).status_code == 303


@pytest.mark.parametrize(
    "spoiled",
    [
        {"issuer": "https://elsewhere.example"},
        {"issuer": None},
        {"token_endpoint": "http://token.example/"},
        {"token_endpoint": None},
        {"jwks_uri": "file:///etc/passwd"},
        {"authorization_endpoint": "javascript:alert(1)"},
    ],
)
async def test_a_description_that_is_not_the_issuers_own_sends_nobody_anywhere(database: TestDatabase, spoiled: dict[str, Any]):
    with HostileProvider(await seconds(database), spoil_metadata=spoiled) as provider:
        async with served(database, config(provider.issuer)) as site, site.browser() as client:
            page = await client.get("/login")
            answer = await client.post("/login/corp", data={"csrf": field_of(page.text, "csrf"), "next": "/"})
            assert answer.status_code == 503
            assert "refresh" not in answer.headers
            assert await database.value("SELECT count(*) FROM deedbox.provider_login") == 0


async def test_a_token_endpoint_that_may_not_be_reached_is_not_dialled(database: TestDatabase):
    with HostileProvider(await seconds(database)) as provider, HostileProvider(await seconds(database)) as inside:
        provider.spoil_metadata = {"token_endpoint": f"{inside.issuer}/token"}
        port = provider.issuer.rpartition(":")[2]
        async with (
            house(database, oidc=(config(provider.issuer),), egress_allow=frozenset({f"127.0.0.1:{port}"})) as site,
            site.browser() as client,
        ):
            assert (await log_in(client, provider)).status_code == 503
            assert inside.asked == []
            assert await database.value("SELECT count(*) FROM deedbox.session") == 0


async def test_a_person_who_says_no_at_the_provider_is_told_so(database: TestDatabase):
    with HostileProvider(await seconds(database)) as provider:
        async with served(database, config(provider.issuer)) as site, site.browser() as client:
            state = provider.authorize(await leave(client))["state"]
            answer = await back(client, {"error": "access_denied", "state": state, "error_description": "<b>no</b>"})
            assert "<b>no</b>" not in answer.text
            await refused(site, answer, "provider_error")


async def test_a_form_of_another_site_or_browser_begins_no_login(database: TestDatabase):
    with HostileProvider(await seconds(database)) as provider:
        async with served(database, config(provider.issuer)) as site, site.browser() as client, site.browser() as other:
            csrf = field_of((await other.get("/login")).text, "csrf")
            await client.get("/login")
            form = {"csrf": csrf, "next": "/"}
            assert (await client.post("/login/corp", data=form)).status_code == 403
            foreign = {"Sec-Fetch-Site": "cross-site", "Origin": "https://evil.example"}
            assert (await other.post("/login/corp", data=form, headers=foreign)).status_code == 403
            assert (await other.post("/login/nobody", data=form)).status_code == 404
            assert await database.value("SELECT count(*) FROM deedbox.provider_login") == 0


@proves("G-OIDC-GROUPS")
async def test_a_group_that_vanished_takes_its_role_and_what_was_granted_here_stays(database: TestDatabase):
    with HostileProvider(await seconds(database), groups=["desk", "ops"]) as provider:
        async with served(database, config(provider.issuer)) as site:
            pool = site.installation.pool
            async with site.browser() as client:
                await log_in(client, provider)
            assert await roles_of(site, "ada") == {"manager", "viewer", "operator"}
            assert await grant_roles(pool, "default", "ada", ["viewer"]) == ["viewer"]
            provider.groups = ["ops"]
            async with site.browser() as client:
                await log_in(client, provider)
            assert await roles_of(site, "ada") == {"viewer", "operator"}
            assert (await site.told("login"))[-1][4]["roles_taken"] == ["manager"]
            for nothing in ([], "unknown", {"desk": True}, None, 7, [["desk"]]):
                provider.groups = nothing
                async with site.browser() as client:
                    await log_in(client, provider)
                assert await roles_of(site, "ada") == {"viewer"}
            assert await database.value("SELECT count(*) FROM deedbox.principal") == 1


@proves("G-OIDC-GROUPS")
async def test_who_is_disabled_here_stays_outside(database: TestDatabase):
    with HostileProvider(await seconds(database), groups=["desk"]) as provider:
        async with served(database, config(provider.issuer)) as site, site.browser() as client:
            await log_in(client, provider)
            assert await disable_user(site.installation.pool, "default", "ada")
            assert (await client.get("/")).headers["location"] == "/login"
            assert (await log_in(client, provider)).status_code == 403
            assert (await client.get("/")).headers["location"] == "/login"
            assert (await site.told("login_refused"))[-1][4]["why"] == "disabled"
            assert await enable_user(site.installation.pool, "default", "ada")
            assert (await log_in(client, provider)).status_code == 303


@proves("G-OIDC")
async def test_neither_a_name_nor_a_mail_address_leads_to_somebody_elses_account(database: TestDatabase):
    with HostileProvider(await seconds(database)) as provider:
        async with served(database, config(provider.issuer)) as site:
            await site.person("ada", "admin")
            await site.person("ada@example.org", "admin")
            for subject, name in (("a1", "ada (corp)"), ("a2", None), ("a1", "ada (corp)")):
                provider.subject = subject
                async with site.browser() as client:
                    assert (await log_in(client, provider)).status_code == 303
                    page = await client.get("/account")
                    assert "You have no role yet" in page.text
                    assert name is None or name in page.text
            assert await database.value("SELECT count(*) FROM deedbox.identity") == 2
            assert await roles_of(site, "ada") == {"admin"}
            strange = "Ada\u202e\x00 " + "x" * 500
            provider.subject, provider.more = "a3", {"preferred_username": strange}
            async with site.browser() as client:
                assert (await log_in(client, provider)).status_code == 303


async def test_the_same_subject_of_another_issuer_is_somebody_else_in_the_tenant_of_that_issuer(database: TestDatabase):
    with HostileProvider(await seconds(database)) as provider, HostileProvider(await seconds(database)) as other:
        async with house(database) as site:
            await add_tenant(site.installation.pool, "north")
        configs = (config(provider.issuer), config(other.issuer, name="other", tenant="north"))
        async with served(database, *configs) as site, site.browser() as client:
            assert (await log_in(client, provider)).status_code == 303
            async with site.browser() as second:
                params = other.authorize(await leave(second, "other"))
                assert (await back(second, params, "other")).status_code == 303
                assert (await second.get("/")).status_code == 200
            rows = await database.rows("SELECT tenant, issuer, subject FROM deedbox.identity ORDER BY tenant")
            assert rows == [("default", provider.issuer, "a1"), ("north", other.issuer, "a1")]


async def test_a_new_key_of_the_provider_is_read_when_it_is_met(database: TestDatabase):
    with HostileProvider(await seconds(database)) as provider:
        async with served(database, config(provider.issuer)) as site:
            async with site.browser() as client:
                assert (await log_in(client, provider)).status_code == 303
            known: Any = site.installation.providers
            client_of = known._providers["corp"]
            provider.key, provider.foreign = provider.foreign, provider.key
            provider.keys = [{**dict(provider.key.as_dict(private=False)), "kid": "two"}]
            provider.spoil_token = lambda one, claims: one.signed(claims, kid="two")
            # Not at once again: a stranger's token must not make us ask the provider as often as it likes.
            asked = provider.asked.count("/jwks")
            async with site.browser() as client:
                assert (await log_in(client, provider)).status_code == 403
            assert provider.asked.count("/jwks") == asked
            read_at, keys = client_of._keys
            client_of._keys = (read_at - 11, keys)
            async with site.browser() as client:
                assert (await log_in(client, provider)).status_code == 303


async def test_a_fresh_login_is_asked_for_and_its_age_is_the_providers_word(database: TestDatabase):
    now = await seconds(database)
    with HostileProvider(now) as provider:
        async with served(database, config(provider.issuer)) as site, site.browser() as client:
            provider.more = {"auth_time": int(now) - 7200}
            await log_in(client, provider)
            url = await leave(client, fresh=True)
            assert "prompt=login" in url
            assert "max_age=0" in url
            for seen, shown in ((int(now) - 7200, 7200), (None, None)):
                provider.more, provider.without = ({"auth_time": seen}, ()) if seen else ({}, ("auth_time",))
                answer = await log_in(client, provider, fresh=True)
                assert answer.status_code == 303
                token = answer.headers.get_list("set-cookie")[0].partition("=")[2].partition(";")[0]
                async with site.api(token) as program:
                    me = (await program.get("/api/me")).json()
                assert me["authenticated_s_ago"] is shown or abs(me["authenticated_s_ago"] - shown) < 60


async def test_passwords_can_be_off(database: TestDatabase):
    with HostileProvider(await seconds(database), groups=["desk"]) as provider:
        async with served(database, config(provider.issuer), local_accounts=False) as site:
            await site.person("Bo", "manager")
            async with site.browser() as client:
                page = await client.get("/login")
                assert 'name="password"' not in page.text
                form = {"csrf": field_of(page.text, "csrf"), "next": "/", "name": "Bo", "password": PASSWORD}
                assert (await client.post("/login", data=form)).status_code == 403
                assert (await log_in(client, provider)).status_code == 303
            async with site.api() as program:
                answer = await program.post("/api/login", json={"name": "Bo", "password": PASSWORD})
                assert answer.status_code == 404
            assert await database.value("SELECT count(*) FROM deedbox.session WHERE method = 'password'") == 0


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"issuer": "http://login.example"}, "issuer"),
        ({"issuer": "https://user@login.example"}, "issuer"),
        ({"issuer": "https://login.example?x=1"}, "issuer"),
        ({"issuer": "not a url"}, "issuer"),
        ({"client_id": ""}, "client_id"),
        ({"client_id": "with blank"}, "client_id"),
        ({"scopes": ["profile"]}, "scopes"),
        ({"algorithms": ["HS256"]}, "algorithms"),
        ({"algorithms": ["none"]}, "algorithms"),
        ({"algorithms": []}, "algorithms"),
        ({"roles": {"desk": ["Not A Role"]}}, "roles"),
        ({"roles": {"desk": []}}, "roles"),
        ({"name": "Corp/../x"}, "name"),
        ({"tenant": "No Such"}, "tenant"),
        ({"secret": "misspelt"}, "secret"),
    ],
)
def test_a_setting_that_is_wrong_is_refused_with_its_name(changed: dict[str, Any], named: str):
    with pytest.raises(ValidationError) as caught:
        settings(oidc=[{**config("https://login.example"), **changed}])
    problems = caught.value.errors(include_input=False)
    assert {problem["loc"][:3] for problem in problems} == {("oidc", 0, named)}
    assert CLIENT_SECRET not in str(problems)


def test_settings_that_let_nobody_in_or_name_one_provider_twice_are_refused(monkeypatch: pytest.MonkeyPatch):
    with pytest.raises(ValidationError, match="local_accounts"):
        Settings(local_accounts=False)
    one = config("https://login.example")
    with pytest.raises(ValidationError, match="one name"):
        settings(oidc=[one, one])
    monkeypatch.setenv("DEEDBOX_OIDC", json.dumps(one))
    (read,) = Settings().oidc
    assert read.shown == "the company"
    assert read.client_secret is not None
    assert CLIENT_SECRET not in repr(read)


@pytest.mark.parametrize(
    ("changed", "named"),
    [({"roles": {"desk": ["nobody_made_this"]}}, "DEEDBOX_OIDC_0_ROLES"), ({"tenant": "nowhere"}, "DEEDBOX_OIDC_0_TENANT")],
)
async def test_a_role_or_a_tenant_that_is_not_there_stops_the_start(
    database: TestDatabase, changed: dict[str, Any], named: str
):
    with pytest.raises(StartError, match=named):
        async with served(database, config("https://login.example", **changed)):
            pass


@proves("G-OIDC")
async def test_a_real_provider_logs_somebody_in(database: TestDatabase):
    user = {"sub": "u-17", "preferred_username": "grace", "groups": ["desk"]}
    with real_provider(user) as issuer:
        async with served(database, config(issuer)) as site, site.browser() as client:
            url = await leave(client)
            async with httpx2.AsyncClient(trust_env=False) as provider:
                answer = await provider.post(url, data={"sub": "u-17"})
            assert answer.status_code == 302, answer.text
            where = answer.headers["location"]
            assert where.startswith(f"{site.url}/login/corp/callback?")
            done = await client.get(where)
            assert done.status_code == 303, done.text
            page = await client.get("/account")
            assert "grace" in page.text
            assert "manager" in page.text
            assert (await client.get(where)).status_code == 403
