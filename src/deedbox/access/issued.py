"""The people whom an issuer names: found by issuer and subject, never by a name or a mail address."""

import hashlib
from dataclasses import dataclass
from uuid import UUID

from deedbox.access.keys import clean_name, usable_name
from deedbox.access.oidc import ProviderRefusedError
from deedbox.access.provider_settings import IssuerConfig
from deedbox.model.values import storable_text
from deedbox.store import provider as store
from deedbox.store.ids import IdSource
from deedbox.store.pool import Connection

_LONGEST_NAME = 150


@dataclass(frozen=True, slots=True)
class Person:
    """A person whom an issuer named, and whether this made the person."""

    principal_id: UUID
    name: str
    made: bool


async def person_of(
    connection: Connection, ids: IdSource, config: IssuerConfig, tenant: str, *, subject: str, name: str | None
) -> Person:
    """The person of this issuer and subject, made the first time under a name that nobody has; in a transaction.

    Others who come as the same wait for its end. Raises ProviderRefusedError where the person is disabled.
    """
    issuer = config.issuer
    known = await store.known(connection, tenant, issuer, subject)
    if known is not None:
        if known.disabled:
            raise ProviderRefusedError("disabled")
        return Person(known.principal_id, known.name, made=False)
    principal_id = ids.new()
    for one in _names_for(config.name, subject, name):
        if await store.make(connection, principal_id=principal_id, tenant=tenant, name=one, issuer=issuer, subject=subject):
            return Person(principal_id, one, made=True)
    raise ProviderRefusedError("name")


def _names_for(issuer: str, subject: str, name: str | None) -> list[str]:
    """Names for a new person, in the order in which they are tried: the issuer's word, made distinct where it is taken."""
    said = clean_name(storable_text((name or "")[:_LONGEST_NAME]))
    short = hashlib.sha256(subject.encode("utf-8", "surrogatepass")).hexdigest()[:12]
    plain = said if usable_name(said) else ""
    found = [plain, f"{plain} ({issuer})", f"{plain} ({issuer} {short})"] if plain else []
    return [*found, f"{issuer} {short}"]
