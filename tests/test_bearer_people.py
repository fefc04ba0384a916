"""Whose call an access token makes it: a person's, a program's, or a person's through a program; and with which roles."""

import asyncio
from typing import Any
from uuid import UUID

import httpx2
import pytest

from deedbox.access import add_key, disable_user, grant_roles
from deedbox.access.bearer_settings import BearerConfig
from deedbox.gate.rules import require_person
from deedbox.model.errors import DeedboxError
from deedbox.settings import Settings
from deedbox.wiring import StartError
from tests.database import TestDatabase
from tests.guarantees import proves
from tests.servers.installed import House
from tests.servers.issuing import ROLES, issuer_config, taking, token_for
from tests.servers.logins import config, log_in, roles_of, seconds
from tests.servers.openid_provider import HostileProvider
from tests.test_bearer import JOBS, desk, me

pytestmark = pytest.mark.anyio
ON_BEHALF = "Deedbox-On-Behalf-Of"
AGENT: dict[str, Any] = {
    "services": {"agent-7": {"service": "agent", "acts_for_others": True}, "plain-1": {"service": "agent"}}
}


async def again(site: House, token: str) -> dict[str, Any]:
    """Ask as if two seconds had passed."""
    site.installation.keys.forget()
    answer = await me(site, token)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


@proves("G-BEARER-ROLES")
async def test_a_newer_token_gives_and_takes_roles_and_an_older_one_gives_nothing_back(database: TestDatabase):
    now = await seconds(database)
    with HostileProvider(now, groups=["desk"]) as provider:
        async with taking(database, provider) as site:
            old = token_for(provider, site, iat=int(now) - 20)
            newest = token_for(provider, site, iat=int(now) - 5, groups=["ops"])
            between = token_for(provider, site, iat=int(now) - 10, groups=["desk", "ops"])
            silent = token_for(provider, site, iat=int(now), groups=None)
            assert (await again(site, old))["roles"] == ["manager", "viewer"]
            assert (await again(site, newest))["roles"] == ["operator"]
            for token in (old, between, silent):
                assert (await again(site, token))["roles"] == ["operator"]
            # What was granted here stays, whatever groups say.
            await grant_roles(site.installation.pool, "default", "ada", ["viewer"])
            emptied = token_for(provider, site, iat=int(now) + 1, groups=[])
            assert (await again(site, emptied))["roles"] == ["viewer"]
            told = await site.told("take_token")
            assert [(entry[4]["roles_given"], entry[4]["roles_taken"]) for entry in told] == [
                (["manager", "viewer"], []),
                (["operator"], ["manager", "viewer"]),
                ([], ["operator"]),
            ]


@proves("G-BEARER-ROLES")
async def test_a_login_and_a_token_of_one_issuer_are_one_person_with_the_roles_of_the_later(database: TestDatabase):
    now = await seconds(database)
    with HostileProvider(now, groups=["desk"]) as provider:
        async with taking(database, provider, oidc=(config(provider.issuer),)) as site, site.browser() as browser:
            before = token_for(provider, site, iat=int(now) - 30, groups=["ops"])
            assert (await log_in(browser, provider)).status_code == 303
            assert (await again(site, before))["roles"] == ["manager", "viewer"]
            assert await roles_of(site, "ada") == {"manager", "viewer"}
            assert await database.value("SELECT count(*) FROM deedbox.principal") == 1
            page = await browser.get("/account")
            assert "ada" in page.text


async def test_an_issuer_without_roles_of_its_own_has_those_of_the_same_peoples_login(database: TestDatabase):
    now = await seconds(database)
    with HostileProvider(now, groups=["desk"]) as provider:
        bearer = {"name": "corp", "issuer": provider.issuer}
        login = config(provider.issuer)
        settings = Settings(bearer=(bearer,), oidc=(login,))  # pyright: ignore[reportArgumentType] -- as the environment has it
        assert settings.bearer_issuers[0].roles == {group: tuple(roles) for group, roles in ROLES.items()}
        with pytest.raises(ValueError, match="gives other roles"):
            Settings(bearer=({**bearer, "roles": {"desk": ["viewer"]}},), oidc=(login,))  # pyright: ignore[reportArgumentType] -- likewise
        alone = BearerConfig.model_validate(bearer)
        assert not alone.gives_roles
        async with taking(database, provider, roles={}) as site:
            assert (await again(site, token_for(provider, site)))["roles"] == []


@proves("G-BEARER-ROLES")
async def test_many_tokens_of_a_new_person_at_once_make_one(database: TestDatabase):
    now = await seconds(database)
    with HostileProvider(now, groups=["desk"]) as provider:
        async with taking(database, provider) as site:
            tokens = [token_for(provider, site, jti=str(number)) for number in range(8)]
            answers = await asyncio.gather(*(me(site, token) for token in tokens))
            assert {answer.status_code for answer in answers} == {200}
            assert await database.value("SELECT count(*) FROM deedbox.principal") == 1
            assert len(await site.told("take_token")) == 1


async def test_who_is_disabled_here_stays_outside_whatever_the_issuer_says(database: TestDatabase):
    with HostileProvider(await seconds(database), groups=["desk"]) as provider:
        async with taking(database, provider) as site:
            token = token_for(provider, site)
            assert (await me(site, token)).status_code == 200
            await disable_user(site.installation.pool, "default", "ada")
            site.installation.keys.forget()
            assert (await me(site, token)).status_code == 401


async def test_people_may_have_to_be_known_first(database: TestDatabase):
    with HostileProvider(await seconds(database), groups=["desk"]) as provider:
        async with taking(database, provider, people="known", oidc=(config(provider.issuer),)) as site:
            token = token_for(provider, site)
            assert (await me(site, token)).status_code == 401
            assert await database.value("SELECT count(*) FROM deedbox.principal") == 0
            async with site.browser() as browser:
                assert (await log_in(browser, provider)).status_code == 303
            site.installation.keys.forget()
            assert (await me(site, token)).json()["name"] == "ada"


async def test_a_name_leads_to_nobody_elses_account(database: TestDatabase):
    with HostileProvider(await seconds(database)) as provider:
        async with taking(database, provider) as site:
            await site.person("ada", "admin")
            found = await again(site, token_for(provider, site))
            assert (found["name"], found["roles"]) == ("ada (corp)", [])


async def test_another_tenants_people_see_nothing_of_this_one(database: TestDatabase):
    await database.rows("INSERT INTO deedbox.tenant (tenant) VALUES ('other')")
    with HostileProvider(await seconds(database), groups=["desk", "ops"]) as provider:
        async with taking(database, provider, desk(), tenant="other") as site:
            key = await add_key(site.installation.pool, site.installation.ids, "default", "ours", ["operator"], "")
            async with site.api(key) as ours:
                job = (await ours.post(JOBS, json={"text": "x"})).json()["job_id"]
            async with site.api(token_for(provider, site)) as theirs:
                assert (await theirs.get("/api/me")).json()["tenant"] == "other"
                assert (await theirs.get(f"/api/jobs/{job}")).status_code == 404


# Programs ----------------------------------------------------------------------------------------------------------------


async def through(site: House, token: str, name: str | None) -> httpx2.Response:
    async with site.api(token, **({ON_BEHALF: name} if name else {})) as client:
        return await client.get("/api/me")


async def agent(site: House, *roles: str) -> None:
    await add_key(site.installation.pool, site.installation.ids, "default", "agent", roles, "")


@proves("G-BEARER-DECIDES")
async def test_a_program_is_a_service_and_decides_nothing(database: TestDatabase):
    with HostileProvider(await seconds(database)) as provider:
        with pytest.raises(StartError, match="DEEDBOX_BEARER_0_SERVICES: there is no service agent"):
            async with taking(database, provider, **AGENT):
                pass
        async with taking(database, provider) as site:
            await agent(site, "manager", "operator")
        async with taking(database, provider, desk(), **AGENT) as site:
            found = await again(site, token_for(provider, site, sub="agent-7", scope="deedbox:submit deedbox:decide"))
            assert (found["name"], found["kind"], found["verbs"]) == ("agent", "service", ["submit", "decide"])
            bearer = site.installation.bearer
            assert bearer is not None
            principal = await bearer.resolve(token_for(provider, site, sub="agent-7"), "api")
            assert principal is not None
            with pytest.raises(DeedboxError) as refused:
                require_person(principal)
            assert refused.value.code == "person_required"
            assert await database.value("SELECT count(*) FROM deedbox.identity") == 0


@proves("G-BEARER-DECIDES")
async def test_a_program_that_acts_for_a_person_has_the_smaller_of_both_rights_and_decides_nothing(database: TestDatabase):
    with HostileProvider(await seconds(database), groups=["desk", "ops"]) as provider:
        async with taking(database, provider) as site:
            await agent(site, "operator")
        async with taking(database, provider, desk(), **AGENT) as site:
            assert (await again(site, token_for(provider, site)))["roles"] == ["manager", "operator", "viewer"]
            token = token_for(provider, site, sub="agent-7", scope="deedbox:read deedbox:submit")
            found = (await through(site, token, "ada")).json()
            assert (found["name"], found["kind"], found["through"]) == ("ada", "service", "agent")
            assert (found["roles"], found["verbs"]) == (["operator"], ["submit", "read"])
            plain = token_for(provider, site, sub="plain-1")
            for bad, name in ((token, "nobody"), (token, "agent"), (plain, "ada"), (token_for(provider, site), "ada")):
                answer = await through(site, bad, name)
                assert answer.status_code == 403, answer.text
                assert answer.json()["detail"] == "This key may not act for anybody of that name."
            async with site.api(token, **{ON_BEHALF: "ada"}) as client:
                job = await client.post(JOBS, json={"text": "x"})
                assert job.status_code == 202, job.text
            query = "SELECT subject, through FROM deedbox.job WHERE job_id = %s"
            ((subject, via),) = await database.rows(query, UUID(job.json()["job_id"]))
            names = "SELECT name FROM deedbox.principal WHERE principal_id = %s"
            assert [await database.value(names, subject), await database.value(names, via)] == ["ada", "agent"]


@proves("G-BEARER-DECIDES")
async def test_an_exchanged_token_names_the_program_and_is_its_call(database: TestDatabase):
    """RFC 8693: the issuer says who acts for whom."""
    with HostileProvider(await seconds(database), groups=["desk", "ops"]) as provider:
        async with taking(database, provider) as site:
            await agent(site, "operator")
        async with taking(database, provider, desk(), **AGENT) as site:
            found = await again(site, token_for(provider, site, act={"sub": "agent-7"}))
            assert (found["name"], found["kind"], found["through"], found["roles"]) == ("ada", "service", "agent", ["operator"])
            assert "decide" not in found["verbs"]
            site.installation.keys.forget()
            assert (await me(site, token_for(provider, site, act={"sub": "plain-1"}))).status_code == 401
            nested = token_for(provider, site, act={"sub": "unknown", "act": {"sub": "agent-7"}})
            assert (await me(site, nested)).status_code == 401


# Settings ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"issuer": "http://login.example"}, "must be https"),
        ({"issuer": "https://login.example?x=1"}, "without query"),
        ({"algorithms": ["none"]}, "algorithms"),
        ({"algorithms": ["HS256"]}, "algorithms"),
        ({"algorithms": []}, "algorithms"),
        ({"audience": []}, "audience"),
        ({"audience": [" "]}, "audience"),
        ({"scopes": {}}, "scopes"),
        ({"scopes": {'a"b': ["read"]}}, "scopes"),
        ({"scopes": {"a": ["fly"]}}, "scopes"),
        ({"scopes": {"a": []}}, "scopes"),
        ({"jwks_uri": "http://keys.example/"}, "must be https"),
        ({"services": {"x": {"name": "y"}}}, "services"),
        ({"services": {" ": {"service": "y"}}}, "services"),
        ({"people": "everybody"}, "people"),
        ({"secret": "x"}, "secret"),
    ],
)
def test_a_setting_that_cannot_be_meant_stops_the_start(changed: dict[str, Any], said: str):
    with pytest.raises(ValueError, match=said):
        Settings(bearer=(issuer_config("https://login.example") | changed,))  # pyright: ignore[reportArgumentType] -- as given


def test_two_issuers_have_two_names_and_stand_there_once():
    one = issuer_config("https://login.example")
    for other in ({**one, "name": "other"}, {**one, "issuer": "https://another.example"}):
        with pytest.raises(ValueError, match="bearer: two issuers"):
            Settings(bearer=(one, other))  # pyright: ignore[reportArgumentType] -- as given


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"roles": {"a": ["nothing"]}}, "BEARER_0_ROLES: there is no role"),
        ({"tenant": "x"}, "BEARER_0_TENANT: there is no tenant"),
    ],
)
async def test_what_is_not_in_the_database_stops_the_start(database: TestDatabase, changed: dict[str, Any], said: str):
    with pytest.raises(StartError, match=said):
        async with taking(database, "https://login.example", **changed):
            pass
