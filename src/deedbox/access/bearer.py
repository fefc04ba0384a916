"""Who an access token is: a person whom its issuer names, a program that settings name, or the one acting for the other.

A token resolves to a principal and is forgotten; a hash of it is remembered for two seconds, as a key's is. The roles of a
principal are those of the database. Groups of a token set them as a login does, where no later one has.
"""

from collections.abc import Sequence
from functools import partial
from typing import Literal

from deedbox.access.bearer_settings import BearerConfig, ServiceSubject
from deedbox.access.entries import By
from deedbox.access.issued import Person, person_of
from deedbox.access.keys import clean_name, digest, usable_name
from deedbox.access.oidc import ProviderAwayError, ProviderRefusedError
from deedbox.access.published import Published
from deedbox.access.resolve import KeyCache, remembered
from deedbox.access.tokens import Claimed, Signed, TokenRefusedError, believed, signed, subject_of
from deedbox.egress import EgressClient, EgressPolicy
from deedbox.model.errors import DeedboxError
from deedbox.model.identity import Principal, Through, Verb
from deedbox.store import bearer as store
from deedbox.store import provider, roles
from deedbox.store.audit import append
from deedbox.store.ids import IdSource
from deedbox.store.pool import Connection, Pool
from deedbox.store.transaction import autocommit, transaction
from deedbox.telemetry import log

Face = Literal["api", "mcp"]
FACES: tuple[Face, ...] = ("api", "mcp")
METADATA = "/.well-known/oauth-protected-resource"
_RETRY_S = 5


class Bearer:
    """The issuers whose access tokens one process takes."""

    def __init__(
        self,
        pool: Pool,
        ids: IdSource,
        configs: Sequence[BearerConfig],
        policy: EgressPolicy,
        *,
        public_url: str,
        tenant: str,
        cache: KeyCache,
    ) -> None:
        """`tenant` is that of issuers without one of their own; audiences are made from `public_url`, never from Host."""
        self._pool = pool
        self._ids = ids
        self._client = EgressClient(policy)
        self._issuers = {one.issuer: (one, Published(one.issuer, self._client, jwks_uri=one.jwks_uri)) for one in configs}
        self._public_url = public_url.rstrip("/")
        self._tenant = tenant
        self._cache = cache

    async def aclose(self) -> None:
        """Close what is open."""
        for _, published in self._issuers.values():
            await published.aclose()
        await self._client.aclose()

    async def resolve(self, bearer: str, face: Face) -> Principal | None:
        """Whom the token makes of its bearer at this face, with no more than its scope; None for one that is not believed.

        Raises DeedboxError("provider_away") where the issuer's keys cannot be had.
        """
        return await self._told(bearer, face, None)

    async def resolve_acting(self, bearer: str, name: str, face: Face) -> Principal | None:
        """The person of that name for whom the program with this token calls; with the roles and verbs that both hold.

        None where its subject has no right to act for others, and for a person who is unknown, disabled or of another tenant.
        Raises DeedboxError("provider_away").
        """
        name = clean_name(name)
        return await self._told(bearer, face, name) if usable_name(name) else None

    async def _told(self, bearer: str, face: Face, name: str | None) -> Principal | None:
        place = digest(f"{face} {bearer} {name or ''}")
        known = self._cache.get(place)
        if known is not None:
            return known[0]
        try:
            # Before anything is remembered or asked: what nobody signed takes no place and no connection.
            token = await signed(bearer, self._issuers)
        except TokenRefusedError as error:
            return _refused(None, error.why)
        except ProviderAwayError as error:
            raise DeedboxError(
                "provider_away", "The keys of the token's issuer cannot be read; try again shortly.", retry_after=_RETRY_S
            ) from error
        return await remembered(self._cache, place, partial(self._look_up, token, face, name))

    async def _look_up(self, token: Signed, face: Face, name: str | None) -> Principal | None:
        config = token.config
        try:
            subject = subject_of(token.claims, "sub")
            program = config.services.get(subject)
            if program is not None:
                return await self._program(token, face, program, name)
            return None if name is not None else await self._person(token, face, subject)
        except (TokenRefusedError, ProviderRefusedError) as error:
            return _refused(config.name, error.why)

    async def _program(self, token: Signed, face: Face, program: ServiceSubject, name: str | None) -> Principal | None:
        tenant = token.config.tenant or self._tenant
        async with autocommit(self._pool) as connection:
            now, holder = await store.service(connection, tenant, program.service)
            claimed = believed(token, self._audience(face), now)
            if holder is None or holder.disabled:
                raise TokenRefusedError("service")
            if claimed.actor is not None:
                raise TokenRefusedError("act")
            if name is not None:
                return await self._acting(connection, claimed, tenant, program, name)
        who = (str(holder.principal_id), tenant, holder.name)
        verbs = holder.verbs & claimed.scope
        return Principal(*who, "service", holder.roles, "access_token", verbs=verbs, scope=claimed.scope)

    async def _person(self, token: Signed, face: Face, subject: str) -> Principal | None:
        config, tenant = token.config, token.config.tenant or self._tenant
        async with autocommit(self._pool) as connection:
            now, holder = await store.person(connection, tenant, config.issuer, subject)
        claimed = believed(token, self._audience(face), now)
        program = None if claimed.actor is None else config.services.get(claimed.actor)
        if claimed.actor is not None and (program is None or not program.acts_for_others):
            raise TokenRefusedError("act")
        if holder is None and config.people == "known":
            raise TokenRefusedError("unknown")
        if holder is not None and holder.disabled:
            raise TokenRefusedError("disabled")
        says = config.gives_roles and claimed.groups is not None
        if holder is None or (says and (holder.roles_at is None or holder.roles_at < claimed.issued_at)):
            await self._take(config, tenant, claimed)
            async with autocommit(self._pool) as connection:
                _, holder = await store.person(connection, tenant, config.issuer, subject)
        if holder is None or holder.disabled:
            raise TokenRefusedError("disabled")
        if program is not None:
            async with autocommit(self._pool) as connection:
                return await self._acting(connection, claimed, tenant, program, holder.name)
        who = (str(holder.principal_id), tenant, holder.name)
        verbs = holder.verbs & claimed.scope
        return Principal(*who, "person", holder.roles, "access_token", verbs=verbs, scope=claimed.scope)

    async def _acting(
        self, connection: Connection, claimed: Claimed, tenant: str, program: ServiceSubject, name: str
    ) -> Principal | None:
        """The person through the program: a service's call, whoever it names."""
        if not program.acts_for_others:
            return None
        found = await store.acting(connection, tenant, service=program.service, person=name)
        if found is None:
            return None
        who = (str(found.principal_id), found.tenant, found.name)
        verbs, through = found.verbs & claimed.scope, Through(str(found.service_id), found.service)
        return Principal(*who, "service", found.roles, "access_token", verbs=verbs, scope=claimed.scope, through=through)

    async def _take(self, config: BearerConfig, tenant: str, claimed: Claimed) -> None:
        """Make the person where there is none, and set the roles from groups unless a later token did; with an audit entry."""
        async with transaction(self._pool) as connection:
            person: Person = await person_of(connection, self._ids, config, tenant, subject=claimed.subject, name=claimed.name)
            given: list[str] = []
            taken: list[str] = []
            if (
                config.gives_roles
                and claimed.groups is not None
                and await store.newer(connection, tenant, config.issuer, claimed.subject, claimed.issued_at)
            ):
                wanted = config.roles_of(claimed.groups)
                given, taken = await provider.set_roles(connection, person.principal_id, wanted)
            if person.made or given or taken:
                detail = {
                    "issuer": config.issuer,
                    "person_made": person.made,
                    "roles_given": given,
                    "roles_taken": taken,
                }
                subject = ("person", str(person.principal_id))
                await append(connection, By(person.name, "api", "access_token").entry(tenant, "take_token", subject, detail))

    def _audience(self, face: Face) -> frozenset[str]:
        """What `aud` must hold one of at this face, where settings say nothing: the server, or the face itself."""
        return frozenset({self._public_url, f"{self._public_url}/", f"{self._public_url}/{face}"})

    def metadata_url(self, face: Face | None) -> str:
        """Where the description of the protected resource is (RFC 9728), below the public URL's own host."""
        scheme, _, rest = self._public_url.partition("://")
        host, _, path = rest.partition("/")
        return f"{scheme}://{host}{METADATA}{'/' + path if path else ''}{'/' + face if face else ''}"

    def metadata(self, face: Face | None) -> dict[str, object]:
        """What a client is told that wants to call: whom to ask for a token, for which resource and with which scopes."""
        scopes = {name: None for config, _ in self._issuers.values() for name in config.scopes}
        return {
            "resource": f"{self._public_url}/{face}" if face else self._public_url,
            "authorization_servers": list(self._issuers),
            "scopes_supported": list(scopes),
            "bearer_methods_supported": ["header"],
            "resource_name": "Deedbox",
        }

    def challenge(self, face: Face, error: str | None, verbs: frozenset[Verb]) -> str:
        """The value of `WWW-Authenticate` (RFC 6750, 9728): why, where the description is, and what a token is needed for."""
        first = next(config for config, _ in self._issuers.values())
        parts = {"realm": "deedbox", "error": error, "resource_metadata": self.metadata_url(face)}
        parts |= {"scope": " ".join(first.scopes_for(verbs)) or None}
        # Scopes and URLs have no quotes and no backslashes: settings refuse them.
        return "Bearer " + ", ".join(f'{name}="{value}"' for name, value in parts.items() if value)


async def check_bearer(pool: Pool, configs: Sequence[BearerConfig], tenant: str) -> None:
    """Raise ValueError naming the setting where a role, a tenant or a service does not exist in this database."""
    async with autocommit(pool) as connection:
        tenants = {line.tenant for line in await roles.tenants(connection)}
        for number, config in enumerate(configs):
            place, theirs = f"DEEDBOX_BEARER_{number}", config.tenant or tenant
            unknown = await roles.unknown(connection, config.roles_of(frozenset(config.roles)))
            if unknown:
                raise ValueError(f"{place}_ROLES: there is no role {', '.join(unknown)}; `deedbox roles add` makes one")
            if theirs not in tenants:
                raise ValueError(f"{place}_TENANT: there is no tenant {theirs}; `deedbox tenants add` makes one")
            named = sorted({one.service for one in config.services.values()})
            missing = sorted(set(named) - await store.services(connection, theirs, named))
            if missing:
                raise ValueError(f"{place}_SERVICES: there is no service {', '.join(missing)}; `deedbox keys add` makes one")


def _refused(issuer: str | None, why: str) -> None:
    log("access").info("token_refused", issuer=issuer, why=why)
