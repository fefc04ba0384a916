"""Who says who is asking, where it is not this house: the providers that people log in at, the issuers of access tokens."""

from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

from deedbox.access.resolve import KeyCache
from deedbox.access.sessions import LoginGuard
from deedbox.egress import EgressPolicy
from deedbox.settings import Settings
from deedbox.store.ids import IdSource
from deedbox.store.pool import Pool
from deedbox.wiring.places import StartError

if TYPE_CHECKING:
    from deedbox.access.bearer import Bearer
    from deedbox.access.provider_login import Providers


async def providers_of(
    settings: Settings, pool: Pool, ids: IdSource, policy: EgressPolicy, guard: LoginGuard, stack: AsyncExitStack
) -> "Providers | None":
    """The providers that people log in at. Raises StartError naming the setting where one gives what is not there."""
    if not settings.oidc:
        return None
    # Imported late: it brings the libraries of the protocol, which only who uses them waits for.
    from deedbox.access.provider_login import Providers, check_providers  # noqa: PLC0415

    try:
        await check_providers(pool, settings.oidc, settings.tenant)
    except ValueError as error:
        raise StartError(str(error)) from error
    providers = Providers(
        pool,
        ids,
        settings.oidc,
        policy,
        public_url=settings.public_url,
        tenant=settings.tenant,
        failures=guard.failures,
    )
    stack.push_async_callback(providers.aclose)
    return providers


async def bearer_of(
    settings: Settings, pool: Pool, ids: IdSource, policy: EgressPolicy, keys: KeyCache, stack: AsyncExitStack
) -> "Bearer | None":
    """The issuers of access tokens. Raises StartError naming the setting where one gives what is not there."""
    if not settings.bearer:
        return None
    # Imported late, as above.
    from deedbox.access.bearer import Bearer, check_bearer  # noqa: PLC0415

    issuers = settings.bearer_issuers
    try:
        await check_bearer(pool, issuers, settings.tenant)
    except ValueError as error:
        raise StartError(str(error)) from error
    bearer = Bearer(pool, ids, issuers, policy, public_url=settings.public_url, tenant=settings.tenant, cache=keys)
    stack.push_async_callback(bearer.aclose)
    return bearer
