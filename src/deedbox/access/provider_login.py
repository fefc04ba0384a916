"""Logging in at an OpenID provider: what leaves with the browser, what comes back with it, and whom that makes of it.

A login is a row that answers once, for ten minutes, to the browser in which it began. The row holds hashes alone: nonce and
PKCE verifier are made from the state and a secret that only that browser's cookie holds. A person is found by issuer and
subject, never by a name or a mail address.
"""

import base64
import hashlib
import hmac
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

from deedbox.access.entries import By, FailureBudget
from deedbox.access.issued import person_of
from deedbox.access.keys import digest
from deedbox.access.oidc import ProviderAwayError, ProviderClient, ProviderRefusedError, Verified, new_state
from deedbox.access.provider_settings import ProviderConfig
from deedbox.access.sessions import SessionOpened, csrf_of, open_session
from deedbox.egress import EgressClient, EgressPolicy
from deedbox.model.errors import DeedboxError
from deedbox.model.identity import Principal
from deedbox.store import bearer, roles
from deedbox.store import provider as store
from deedbox.store.audit import append
from deedbox.store.ids import IdSource
from deedbox.store.pool import Pool
from deedbox.store.transaction import autocommit, transaction
from deedbox.telemetry import log

LOGIN_S = 600.0
"""How long a login may take at the provider, in seconds."""
MOST_UNDER_WAY = 10_000
_LONGEST = 4096


@dataclass(frozen=True, slots=True)
class Finished:
    """A login that succeeded: the session, and the path that was asked for before it."""

    opened: SessionOpened
    goes_to: str


class Providers:
    """The providers that settings name, for one console."""

    def __init__(
        self,
        pool: Pool,
        ids: IdSource,
        configs: Sequence[ProviderConfig],
        policy: EgressPolicy,
        *,
        public_url: str,
        tenant: str,
        failures: FailureBudget,
    ) -> None:
        """`tenant` is where people of a provider without one of its own log in to; `failures` is shared with other logins."""
        self._pool = pool
        self._ids = ids
        self._client = EgressClient(policy)
        self._providers = {config.name: ProviderClient(config, self._client) for config in configs}
        self._public_url = public_url.rstrip("/")
        self._tenant = tenant
        self._failures = failures

    async def aclose(self) -> None:
        """Close what is open."""
        await self._client.aclose()

    @property
    def shown(self) -> list[tuple[str, str]]:
        """Name and title of each, in the order of the settings."""
        return [(name, one.config.shown) for name, one in self._providers.items()]

    @property
    def tenants(self) -> frozenset[str]:
        """The tenants that people of these providers log in to."""
        return frozenset(one.config.tenant or self._tenant for one in self._providers.values())

    async def begin(self, name: str, *, browser: str, goes_to: str, fresh: bool) -> str:
        """Where the browser is to go; `browser` is the secret of its login cookie, `fresh` asks for a new proof.

        Raises DeedboxError: not_found, provider_away where the provider does not answer, too_many_logins.
        """
        provider = self._named(name)
        state = new_state()
        nonce, verifier = _made_from(browser, state, "nonce"), _made_from(browser, state, "verifier")
        try:
            url = await provider.authorization_url(
                redirect_uri=self._redirect_uri(name), state=state, nonce=nonce, verifier=verifier, fresh=fresh
            )
        except (ProviderAwayError, ProviderRefusedError) as error:
            raise self._away(name, error) from error
        async with autocommit(self._pool) as connection:
            begun = await store.begin(
                connection,
                state_sha256=digest(state),
                browser_sha256=digest(browser),
                nonce_sha256=digest(nonce),
                provider=name,
                goes_to=goes_to,
                fresh=fresh,
                expires_s=LOGIN_S,
                most=MOST_UNDER_WAY,
            )
        if not begun:
            raise DeedboxError("too_many_logins", "Too many logins are under way; wait a little.", retry_after=30)
        return url

    async def finish(
        self, name: str, params: Mapping[str, Sequence[str]], *, browser: str, peer: str, replaces: str | None
    ) -> Finished:
        """Open a session for whom the provider sent back, or refuse and change nothing; `params` are the query's.

        Raises DeedboxError: not_found, login_refused with one sentence for every reason, provider_away.
        """
        provider = self._named(name)
        tenant = provider.config.tenant or self._tenant
        try:
            return await self._finish(provider, tenant, params, browser=browser, peer=peer, replaces=replaces)
        except ProviderRefusedError as error:
            await self._note_refusal(tenant, name, error.why, peer)
            said = "The login was not accepted, so nothing was opened. Begin again from the login page."
            raise DeedboxError("login_refused", said) from error
        except ProviderAwayError as error:
            raise self._away(name, error) from error

    async def goodbye(self, principal: Principal) -> str | None:
        """Where the browser is sent to log out of the provider that a person came through; None where it is to go nowhere.

        A provider that does not answer keeps nobody logged in here.
        """
        async with autocommit(self._pool) as connection:
            issuers = await store.issuers(connection, UUID(principal.principal_id))
        for provider in self._providers.values():
            if provider.config.issuer in issuers and (provider.config.tenant or self._tenant) == principal.tenant:
                try:
                    return await provider.end_session_url(goes_to=f"{self._public_url}/login")
                except (ProviderAwayError, ProviderRefusedError) as error:
                    log("access").warning("provider_away", provider=provider.config.name, why=str(error))
        return None

    async def _finish(
        self,
        provider: ProviderClient,
        tenant: str,
        params: Mapping[str, Sequence[str]],
        *,
        browser: str,
        peer: str,
        replaces: str | None,
    ) -> Finished:
        name, state = provider.config.name, _one(params, "state")
        if not browser or state is None:
            raise ProviderRefusedError("state")
        async with autocommit(self._pool) as connection:
            returned = await store.take(connection, state_sha256=digest(state), browser_sha256=digest(browser), provider=name)
        if returned is None:
            raise ProviderRefusedError("state")
        if not returned.in_time:
            raise ProviderRefusedError("expired")
        issuer = _one(params, "iss")
        metadata = await provider.metadata()
        if issuer != provider.config.issuer and (issuer is not None or "iss" in params or metadata.names_itself):
            raise ProviderRefusedError("iss_parameter")
        code = _one(params, "code")
        if "error" in params or code is None:
            raise ProviderRefusedError("provider_error")
        nonce, verifier = _made_from(browser, state, "nonce"), _made_from(browser, state, "verifier")
        if not hmac.compare_digest(digest(nonce), returned.nonce_sha256):
            raise ProviderRefusedError("nonce")
        verified = await provider.verified(
            code=code, redirect_uri=self._redirect_uri(name), verifier=verifier, nonce=nonce, now=returned.now
        )
        opened = await self._open(provider.config, tenant, verified, now=returned.now, peer=peer, replaces=replaces)
        return Finished(opened, returned.goes_to)

    async def _open(
        self, config: ProviderConfig, tenant: str, verified: Verified, *, now: float, peer: str, replaces: str | None
    ) -> SessionOpened:
        token = secrets.token_urlsafe(32)
        ago = None if verified.auth_time is None else max(0.0, now - verified.auth_time)
        owed = self._failures.settle()
        try:
            async with transaction(self._pool) as connection:
                person = await person_of(connection, self._ids, config, tenant, subject=verified.subject, name=verified.name)
                # A token that was issued before this moment gives back nothing that is taken here.
                await bearer.newer(connection, tenant, config.issuer, verified.subject, now)
                given, taken = await store.set_roles(connection, person.principal_id, config.roles_of(verified.groups))
                held, verbs = await store.roles(connection, person.principal_id)
                replaced = await open_session(
                    connection,
                    person.principal_id,
                    token,
                    how="oidc",
                    peer=peer,
                    replaces=replaces,
                    authenticated_s_ago=ago,
                )
                detail = {
                    "provider": config.name,
                    "issuer": config.issuer,
                    "source": peer,
                    "person_made": person.made,
                    "replaced": replaced,
                    "roles_given": given,
                    "roles_taken": taken,
                    **({"without_entry": owed} if owed else {}),
                }
                subject = ("person", str(person.principal_id))
                await append(connection, By(person.name, "page", "oidc").entry(tenant, "login", subject, detail))
        except BaseException:
            self._failures.pass_over(owed)
            raise
        who = (str(person.principal_id), tenant, person.name)
        principal = Principal(*who, "person", held, "session", verbs=verbs, authenticated_s_ago=ago)
        return SessionOpened(token, csrf_of(token), principal)

    async def _note_refusal(self, tenant: str, name: str, why: str, peer: str) -> None:
        owed = self._failures.take(peer)
        if owed is None:
            return
        detail = {"why": why, "source": peer, **({"without_entry": owed} if owed else {})}
        try:
            async with transaction(self._pool) as connection:
                await append(
                    connection, By("nobody", "page", "oidc").entry(tenant, "login_refused", ("provider", name), detail)
                )
        except BaseException:
            self._failures.pass_over(owed + 1)
            raise

    def _named(self, name: str) -> ProviderClient:
        provider = self._providers.get(name)
        if provider is None:
            raise DeedboxError("not_found", "There is no such way to log in.")
        return provider

    def _redirect_uri(self, name: str) -> str:
        # One for each provider, so that no answer of one is taken for another's.
        return f"{self._public_url}/login/{name}/callback"

    @staticmethod
    def _away(name: str, error: Exception) -> DeedboxError:
        log("access").warning("provider_away", provider=name, error=type(error).__name__, why=str(error))
        return DeedboxError(
            "provider_away", "The login provider does not answer as it should; try again shortly.", retry_after=5
        )


async def check_providers(pool: Pool, configs: Sequence[ProviderConfig], tenant: str) -> None:
    """Raise ValueError naming the setting where a role or a tenant that a provider gives does not exist in this database."""
    async with autocommit(pool) as connection:
        tenants = {line.tenant for line in await roles.tenants(connection)}
        for number, config in enumerate(configs):
            place = f"DEEDBOX_OIDC_{number}"
            unknown = await roles.unknown(connection, config.roles_of(frozenset(config.roles)))
            if unknown:
                raise ValueError(f"{place}_ROLES: there is no role {', '.join(unknown)}; `deedbox roles add` makes one")
            if (config.tenant or tenant) not in tenants:
                raise ValueError(
                    f"{place}_TENANT: there is no tenant {config.tenant or tenant}; `deedbox tenants add` makes one"
                )


def _made_from(browser: str, state: str, what: str) -> str:
    """A value of 256 bits that only whoever holds the browser's secret and the state can make."""
    mac = hmac.new(
        browser.encode("utf-8", "surrogatepass"),
        f"deedbox oidc {what} {state}".encode("utf-8", "surrogatepass"),
        hashlib.sha256,
    )
    return base64.urlsafe_b64encode(mac.digest()).rstrip(b"=").decode()


def _one(params: Mapping[str, Sequence[str]], name: str) -> str | None:
    """A parameter that stands exactly once; None for one that is absent, repeated, empty or too long."""
    values = params.get(name, ())
    return values[0] if len(values) == 1 and 0 < len(values[0]) <= _LONGEST else None
