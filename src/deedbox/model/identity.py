"""Who is asking: principals, roles, and what a role may do."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Literal, get_args

from deedbox.model.errors import DeedboxError

Verb = Literal["submit", "read", "retry", "take_up", "replace", "cancel", "decide", "reconcile", "switch", "administer"]
Kind = Literal["person", "service"]
Method = Literal["session", "api_key", "personal_key", "form_key", "status_token", "access_token", "terminal", "system"]

VERBS: tuple[Verb, ...] = get_args(Verb)

PERMISSIONS: dict[str, frozenset[Verb]] = {
    "viewer": frozenset({"read"}),
    "operator": frozenset({"submit", "read", "retry", "take_up", "replace", "cancel", "reconcile"}),
    "manager": frozenset({"submit", "read", "retry", "take_up", "replace", "cancel", "reconcile", "decide", "switch"}),
    "admin": frozenset(
        {"submit", "read", "retry", "take_up", "replace", "cancel", "reconcile", "decide", "switch", "administer"}
    ),
}
"""What each built-in role may do. The table `deedbox.role` holds the same rows beside your own roles; a test compares them."""

DECIDE_SCOPE: frozenset[Verb] = frozenset({"read", "decide", "switch", "reconcile"})
"""The scope of a personal key: what takes a person, and reading what there is to decide. Never more than its person may."""

FORM_SCOPE: frozenset[Verb] = frozenset({"submit"})
"""The scope of a form key, which is public."""


@dataclass(frozen=True, slots=True)
class Through:
    """The service through which a person's call came (`Deedbox-On-Behalf-Of`)."""

    principal_id: str
    name: str


@dataclass(frozen=True, slots=True)
class FormKey:
    """What a form key is bound to: one action, and the origins of the pages it may be sent from."""

    key_id: str
    action: str
    origins: frozenset[str]


@lru_cache(maxsize=1024)
def _verbs_of(roles: frozenset[str]) -> frozenset[Verb]:
    return frozenset(verb for role in roles for verb in PERMISSIONS.get(role, frozenset()))


@dataclass(frozen=True, slots=True)
class Principal:
    """A person or a service as one request knows it: tenant, name, roles, and how it proved who it is.

    `verbs` is what it may do as the database says, own roles and the scope of its key counted; without it the built-in roles
    decide. `through` is the service that acts for this person: such a call is a service's call, whoever it names.
    `authenticated_s_ago` is how many seconds ago a person proved who it is; None where that is not known, which is never
    fresh. `job_id` is the only job that the bearer of a status token may see. `scope` is what an access token was issued for,
    whatever its holder may do beside; None for everything that is no access token.
    """

    principal_id: str
    tenant: str
    name: str
    kind: Kind
    roles: frozenset[str]
    method: Method
    verbs: frozenset[Verb] | None = None
    through: Through | None = None
    form: FormKey | None = None
    job_id: str | None = None
    scope: frozenset[Verb] | None = None
    authenticated_s_ago: float | None = field(default=None, compare=False)

    def may(self, verb: Verb) -> bool:
        """Whether this principal may do it by some role, within the scope of its key."""
        if self.verbs is not None:
            return verb in self.verbs
        return verb in _verbs_of(self.roles)

    def is_within_scope(self, verbs: frozenset[Verb]) -> bool:
        """Whether what it came with was issued for one of the verbs; nothing but an access token has such a bound."""
        return self.scope is None or not verbs or bool(self.scope & verbs)

    def has_role(self, wanted: frozenset[str]) -> bool:
        """Whether this principal has one of the wanted roles; `admin` is not a substitute for a named role."""
        return bool(self.roles & wanted)

    @property
    def actor(self) -> str:
        """Who the journals name: a service that acts for a person is named beside the person."""
        return self.name if self.through is None else f"{self.name} (through {self.through.name})"

    @property
    def is_fresh_session(self) -> bool:
        """Whether this is a person in a session whose last login is known and at most `FRESH_S` seconds old."""
        known = self.authenticated_s_ago
        return self.method == "session" and self.kind == "person" and known is not None and known <= FRESH_S


def require_scope(principal: Principal, verbs: frozenset[Verb]) -> None:
    """Raise DeedboxError("insufficient_scope") for an access token that was issued for none of the verbs."""
    if not principal.is_within_scope(verbs):
        raise DeedboxError("insufficient_scope", "The access token was not issued for this.")


FRESH_S = 300.0
"""How long a login counts as fresh, in seconds, where a decision asks for one."""


def known_verbs(names: Iterable[str]) -> frozenset[Verb]:
    """Those of the names that are verbs."""
    wanted = frozenset(names)
    return frozenset(verb for verb in VERBS if verb in wanted)
