"""Logging in at an OpenID provider: what opens a session, and what never does."""

import asyncio
from typing import Any
from urllib.parse import urlencode

import httpx2
import pytest

from deedbox.access import list_sessions
from tests.database import TestDatabase
from tests.guarantees import proves
from tests.servers.console import field_of
from tests.servers.installed import house
from tests.servers.logins import back, config, leave, log_in, refused, roles_of, seconds, served
from tests.servers.openid_provider import (
    CLIENT_ID,
    HostileProvider,
    real_provider,
    signed_with_the_public_key,
    unsigned,
)

pytestmark = pytest.mark.anyio


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
