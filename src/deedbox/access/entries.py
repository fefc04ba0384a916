"""What the audit is told about logins, sessions and accounts, and how a flood of failed logins is kept out of its way.

The audit is one chain with one lock at its end, shared with every decision. So each entry here is the last statement of a
short transaction, and failed logins, the only thing strangers can cause, are written within a budget and counted beyond it.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from time import monotonic
from typing import Any

from deedbox.model.fingerprint import sha256
from deedbox.model.values import storable, storable_text
from deedbox.store.audit import AuditEntry

PER_MINUTE = 60
PER_SOURCE = 20
WINDOW_S = 60.0
_LONGEST_NAME = 200


@dataclass(frozen=True, slots=True)
class By:
    """Who changes an account or a session: the actor's name, the door, and how it was proven who that is."""

    actor: str
    door: str
    method: str

    def entry(self, tenant: str, verb: str, subject: tuple[str, str], detail: Mapping[str, Any]) -> AuditEntry:
        """An entry of what was done on a subject (kind, id)."""
        return AuditEntry(
            tenant, self.actor, self.door, self.method, verb, subject[0], subject[1], None, storable(dict(detail))
        )


AT_TERMINAL = By("terminal", "cli", "terminal")
"""Whoever sits at the machine and holds the database's URL; accounts and keys are made there and at no other door."""


class FailureBudget:
    """How many failed logins of one process get an audit entry of their own; the others are counted, never forgotten.

    A try is already limited to five a minute per name and source (LoginLimit), but names are free: a flood of invented ones
    could add an entry for every verification the processor manages, for ever, and hold the chain's lock against decisions.
    So a source gets at most `PER_SOURCE` entries and all sources together `PER_MINUTE` within `WINDOW_S` seconds. What had
    none, failed or refused unread, is told as a number by the next entry of a login, so a flood stays visible in the chain.
    The budget is per source first, so that a flood from one place does not take away the entries of another. The number
    lives in the process: what was counted after its last login entry is lost when it ends.
    """

    def __init__(self) -> None:
        """Nothing was spent and nothing is owed."""
        self._until = float("-inf")
        self._spent: Counter[str] = Counter()
        self._owed = 0

    def pass_over(self, many: int = 1) -> None:
        """Count tries that get no entry of their own."""
        self._owed += many

    def take(self, source: str) -> int | None:
        """Claim an entry for a failure and what it must tell as `without_entry`; None where it was only counted."""
        now = monotonic()
        if now >= self._until:
            self._until = now + WINDOW_S
            self._spent.clear()
        if self._spent[source] >= PER_SOURCE or self._spent.total() >= PER_MINUTE:
            self.pass_over()
            return None
        self._spent[source] += 1
        return self.settle()

    def settle(self) -> int:
        """How many are owed, which the caller writes now; hand them back with `pass_over` where the entry was not kept."""
        owed, self._owed = self._owed, 0
        return owed


def login_entry(tenant: str, name: str, principal_id: str, *, door: str, source: str, replaced: bool, owed: int) -> AuditEntry:
    """The entry of a login that opened a session; `replaced` says that it ended the one it came with."""
    detail = {"source": source, "replaced": replaced, **_without(owed)}
    return By(name, door, "password").entry(tenant, "login", ("person", principal_id), detail)


def failed_login_entry(tenant: str, name: str, *, door: str, source: str, owed: int) -> AuditEntry:
    """The entry of a login that failed: the same whether the name is known, disabled, a service's or nobody's.

    What stays in the chain for ever is the hash of the name. The name itself lies in the detail, which can be erased: people
    type their password into the wrong field.
    """
    subject = sha256(f"{tenant}\0{name}".encode("utf-8", "surrogatepass")).hex()
    detail = {"name": storable_text(name[:_LONGEST_NAME]), "source": source, **_without(owed)}
    return By("nobody", door, "none").entry(tenant, "login_failed", ("name", subject), detail)


def _without(owed: int) -> dict[str, int]:
    return {"without_entry": owed} if owed else {}
