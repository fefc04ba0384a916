"""Whom a login at a provider makes of somebody: groups, names, tenants, how fresh it is, and what settings may say."""

import json
from typing import Any

import pytest
from pydantic import ValidationError

from deedbox.access import add_tenant, disable_user, enable_user, grant_roles
from deedbox.settings import Settings
from deedbox.wiring import StartError
from tests.database import TestDatabase
from tests.guarantees import proves
from tests.servers.console import field_of
from tests.servers.installed import PASSWORD, house
from tests.servers.logins import back, config, leave, log_in, roles_of, seconds, served
from tests.servers.openid_provider import CLIENT_SECRET, HostileProvider

pytestmark = pytest.mark.anyio


def settings(**given: Any) -> Settings:
    """Settings as the environment gives them, where nothing has its type yet."""
    return Settings(**given)


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
