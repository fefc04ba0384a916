"""The keys of an issuer: rotation without a restart, an issuer that is away, and no flood towards it from here."""

import asyncio
from typing import Any

import pytest
from joserfc.jwk import RSAKey

from deedbox.access import published
from tests.database import TestDatabase
from tests.guarantees import proves
from tests.servers.issuing import claims_for, taking, token_for
from tests.servers.logins import seconds
from tests.servers.openid_provider import HostileProvider
from tests.test_bearer import me

pytestmark = pytest.mark.anyio


def readings(provider: HostileProvider) -> int:
    return provider.asked.count("/jwks")


@proves("G-BEARER-NO-FLOOD")
async def test_a_rotated_key_is_taken_without_a_restart_and_the_old_one_ends(
    database: TestDatabase, monkeypatch: pytest.MonkeyPatch
):
    with HostileProvider(await seconds(database)) as provider:
        async with taking(database, provider) as site:
            old = token_for(provider, site)
            assert (await me(site, old)).status_code == 200
            provider.key = RSAKey.generate_key(2048, {"kid": "two", "use": "sig"})
            new = provider.signed(claims_for(provider, site), kid="two")
            assert (await me(site, new)).status_code == 401, "within ten seconds nobody asks again"
            assert readings(provider) == 1
            monkeypatch.setattr(published, "AGAIN_S", 0.0)
            assert (await me(site, new)).status_code == 200
            assert readings(provider) == 2
            site.installation.keys.forget()
            assert (await me(site, old)).status_code == 401


@proves("G-BEARER-NO-FLOOD")
async def test_tokens_of_unknown_keys_do_not_make_us_ask_the_issuer_again(database: TestDatabase):
    with HostileProvider(await seconds(database)) as provider:
        async with taking(database, provider) as site:
            good = token_for(provider, site)
            claims = claims_for(provider, site)
            bad = [provider.signed(claims, key=provider.foreign, kid=f"k{number}") for number in range(40)]
            answers = await asyncio.gather(*(me(site, token) for token in (*bad[:20], good, *bad[20:])))
            assert sorted({answer.status_code for answer in answers}) == [200, 401]
            assert [answer.status_code for answer in answers].count(200) == 1
            assert readings(provider) == 1
            assert provider.asked.count("/.well-known/openid-configuration") == 1


@proves("G-BEARER-NO-FLOOD")
async def test_an_issuer_that_is_away_is_not_stormed_and_what_is_known_stays_good(
    database: TestDatabase, monkeypatch: pytest.MonkeyPatch
):
    with HostileProvider(await seconds(database)) as provider:
        provider.spoil_metadata = {"issuer": "https://elsewhere.example"}
        async with taking(database, provider) as site:
            token = token_for(provider, site)
            answers = await asyncio.gather(*(me(site, token) for _ in range(10)))
            assert {answer.status_code for answer in answers} == {503}
            assert {answer.json()["code"] for answer in answers} == {"provider_away"}
            assert answers[0].headers["retry-after"] == "5"
            for _ in range(3):
                assert (await me(site, token)).status_code == 503
            assert len(provider.asked) == 1
            provider.spoil_metadata = {}
            monkeypatch.setattr(published, "AGAIN_S", 0.0)
            assert (await me(site, token)).status_code == 200
            # Older than ten minutes: read again beside the work, and good all the same while the issuer fails.
            provider.spoil_metadata = {"jwks_uri": None}
            monkeypatch.setattr(published, "REFRESH_S", -1.0)
            site.installation.keys.forget()
            assert (await me(site, token)).status_code == 200
            # Older than an hour: no longer believed.
            monkeypatch.setattr(published, "MOST_S", -1.0)
            site.installation.keys.forget()
            assert (await me(site, token)).status_code == 503


BAD_SETS: dict[str, object] = {
    "no keys": [],
    "a shared secret": [{"kty": "oct", "kid": "one", "k": "c2VjcmV0"}],
    "no list": {"kty": "RSA"},
    "a key to encrypt": "enc",
    "a short key": "short",
    "a private key": "private",
}


@pytest.mark.filterwarnings("ignore:Key size should be")
@pytest.mark.parametrize("kind", BAD_SETS)
async def test_what_signs_nothing_is_no_key(database: TestDatabase, kind: str):
    with HostileProvider(await seconds(database)) as provider:
        made = BAD_SETS[kind]
        if made == "enc":
            made = [{**provider.key.as_dict(private=False), "use": "enc"}]
        elif made == "short":
            provider.key = RSAKey.generate_key(1024, {"kid": "one", "use": "sig"})
            made = [provider.key.as_dict(private=False)]
        elif made == "private":
            made = [provider.key.as_dict(private=True)]
        provider.keys = made  # pyright: ignore[reportAttributeAccessIssue] -- what no good issuer publishes
        async with taking(database, provider) as site:
            assert (await me(site, token_for(provider, site))).status_code == 503


async def test_keys_may_be_where_settings_say_and_where_rfc_8414_says(database: TestDatabase):
    with HostileProvider(await seconds(database)) as provider:
        async with taking(database, provider, jwks_uri=f"{provider.issuer}/jwks") as site:
            assert (await me(site, token_for(provider, site))).status_code == 200
            assert provider.asked == ["/jwks"]
        provider.asked.clear()
        provider.described_at = "/.well-known/oauth-authorization-server"
        async with taking(database, provider) as site:
            assert (await me(site, token_for(provider, site))).status_code == 200
            assert provider.asked == ["/.well-known/openid-configuration", provider.described_at, "/jwks"]


async def test_keys_on_an_address_that_may_not_be_dialled_are_not_fetched(database: TestDatabase):
    with HostileProvider(await seconds(database)) as provider, HostileProvider(1.0) as inside:
        provider.spoil_metadata = {"jwks_uri": inside.issuer.replace("127.0.0.1", "127.0.0.2") + "/jwks"}
        async with taking(database, provider) as site:
            assert (await me(site, token_for(provider, site))).status_code == 503
            assert inside.asked == []


@proves("G-BEARER-NO-FLOOD")
async def test_whoever_goes_away_while_keys_are_read_ends_it_for_nobody_else(database: TestDatabase):
    held, begun = asyncio.Event(), asyncio.Event()
    with HostileProvider(await seconds(database)) as provider:
        async with taking(database, provider) as site:
            bearer = site.installation.bearer
            assert bearer is not None
            token = token_for(provider, site)
            client = bearer._client  # pyright: ignore[reportPrivateUsage] -- where it can be held
            real: Any = client.request

            async def slowly(*given: Any, **more: Any) -> Any:
                begun.set()
                await held.wait()
                return await real(*given, **more)

            client.request = slowly  # pyright: ignore[reportAttributeAccessIssue] -- likewise
            first = asyncio.ensure_future(bearer.resolve(token, "api"))
            second = asyncio.ensure_future(bearer.resolve(token, "api"))
            await begun.wait()
            first.cancel()
            await asyncio.gather(first, return_exceptions=True)
            held.set()
            principal = await second
            assert principal is not None
            assert readings(provider) == 1


@pytest.mark.parametrize(
    "junk", ["ey..", "eyJ.eyJ.eyJ", "ey" + "A" * 20_000 + ".e30.AA", "eyJhbGciOiJSUzI1NiJ9.W10.AA", "eyé.a.b"]
)
async def test_what_is_no_token_asks_nobody(database: TestDatabase, junk: str):
    with HostileProvider(await seconds(database)) as provider:
        async with taking(database, provider) as site, site.api() as client:
            answer = await client.get("/api/me", headers=[(b"Authorization", f"Bearer {junk}".encode())])
            assert answer.status_code == 401
            assert provider.asked == []
