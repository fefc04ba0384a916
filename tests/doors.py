"""Every door times every rule, as a table: what each answers is proven cell by cell, and rendered into the docs."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Door = Literal["page", "api, session", "api, personal key", "api, service key", "command line", "function"]

DOORS: tuple[Door, ...] = ("page", "api, session", "api, personal key", "api, service key", "command line", "function")
SERVICE: Door = "api, service key"


@dataclass(frozen=True)
class Rule:
    """One case: what it is, and the state or the code that a person gets at every door, or at some doors another.

    A service's key is answered `person_required` unless it is among `but`.
    """

    name: str
    says: str
    gets: str
    but: Mapping[Door, str] = field(default_factory=dict[Door, str])

    def at(self, door: Door) -> str:
        """What this door answers."""
        return self.but.get(door, "person_required" if door == SERVICE else self.gets)


_GRAVE: dict[Door, str] = {"page": "confirmation_required"}
_BODY: dict[Door, str] = {SERVICE: "invalid_input"}

RULES: tuple[Rule, ...] = (
    Rule("approve", "a person of the audience approves what was shown", "approved"),
    Rule("reject", "a person of the audience rejects it, with a reason", "rejected"),
    Rule("no reason", "a rejection without a reason", "invalid_input"),
    Rule("no digest", "a decision that names no digest", "invalid_input", _BODY),
    Rule("other digest", "a decision on another digest than the one that waits", "approval_changed"),
    Rule("not audience", "somebody without a role of the audience", "permission_denied"),
    Rule("admin", "an administrator without a role of the audience", "permission_denied"),
    Rule("no verb", "somebody with a role of the audience that decides nothing", "permission_denied"),
    Rule("not allowed", "a decision that this approval does not take", "permission_denied"),
    Rule("requester", "whoever asked for the job", "permission_denied"),
    Rule("editor", "whoever edited it, where it is of consequence and one approval is enough", "permission_denied"),
    Rule("editor, undoable", "whoever edited it, where it can be undone", "approved"),
    Rule("first of two", "the first approval where the quorum is two", "pending"),
    Rule("second of two", "the second one, by another person", "approved"),
    Rule("twice", "the second one, by the same person", "already_decided"),
    Rule("expired", "an approval whose time is over", "approval_expired"),
    Rule("decided", "an approval that somebody else has decided", "already_decided"),
    Rule("edited", "an approval that somebody else has edited", "approval_changed"),
    Rule("withdrawn", "an approval whose job was canceled", "already_decided"),
    Rule("unknown", "an approval that does not exist", "not_found"),
    Rule("other tenant", "somebody of another tenant", "not_found", {"page": "unauthenticated"}),
    Rule("grave", "something grave, without the password and the stake", "session_required", _GRAVE),
    Rule("domain", "somebody without the role that the domain names", "permission_denied"),
    Rule("domain, licensed", "somebody with the role that the domain names", "approved"),
    Rule("delegated", "somebody to whom a say was handed", "approved"),
    Rule("delegation over", "a say that was handed on until a moment that has passed", "permission_denied"),
    Rule("delegation taken back", "a say that was taken back", "permission_denied"),
    Rule("delegated to the requester", "a say that was handed to whoever asked", "permission_denied"),
    Rule("delegated, grave", "a say that was handed on, in something grave", "permission_denied"),
    Rule("say used", "a say that its holder has given already", "already_decided"),
)


def table() -> list[str]:
    """The table as lines of Markdown."""
    lines = [f"| case | {' | '.join(DOORS)} |", f"|---|{'---|' * len(DOORS)}"]
    lines += [f"| {rule.says} | {' | '.join(f'`{rule.at(door)}`' for door in DOORS)} |" for rule in RULES]
    return lines
