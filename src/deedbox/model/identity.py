"""Who is asking: principals, roles, and what a role may do."""

from dataclasses import dataclass
from typing import Literal

Verb = Literal["submit", "read", "retry", "take_up", "replace", "cancel", "decide", "reconcile", "switch", "administer"]
Kind = Literal["person", "service"]
Method = Literal["session", "api_key", "personal_key", "terminal", "system"]

PERMISSIONS: dict[str, frozenset[Verb]] = {
    "viewer": frozenset({"read"}),
    "operator": frozenset({"submit", "read", "retry", "take_up", "replace", "cancel", "reconcile"}),
    "manager": frozenset({"submit", "read", "retry", "take_up", "replace", "cancel", "reconcile", "decide", "switch"}),
    "admin": frozenset(
        {"submit", "read", "retry", "take_up", "replace", "cancel", "reconcile", "decide", "switch", "administer"}
    ),
}


@dataclass(frozen=True, slots=True)
class Principal:
    """A person or a service as one request knows it: tenant, name, roles, and how it proved who it is."""

    principal_id: str
    tenant: str
    name: str
    kind: Kind
    roles: frozenset[str]
    method: Method

    def may(self, verb: Verb) -> bool:
        """Whether some role of this principal carries the verb."""
        return any(verb in PERMISSIONS.get(role, frozenset()) for role in self.roles)

    def has_role(self, wanted: frozenset[str]) -> bool:
        """Whether this principal has one of the wanted roles; `admin` is not a substitute for a named role."""
        return bool(self.roles & wanted)
