"""Who may decide what: the rules alone, over facts that were read elsewhere, the same for every door and for what it shows.

Each rule answers with a code and a sentence for the person who asked. None of them reads a clock or a database.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal, Protocol
from uuid import UUID

from deedbox.model.consequence import LOW, Consequence
from deedbox.model.errors import DeedboxError
from deedbox.model.identity import Principal, require_scope
from deedbox.store.decision import Handed

Act = Literal["approve", "reject", "edit"]

PERSONAL = frozenset({"session", "personal_key", "access_token", "terminal"})
"""The methods by which a person proves who it is; a service's key is none of them, whoever it speaks for."""

GRAVE_DOORS = frozenset({"page"})
"""Where grave effects are decided: the only door that asks for the password again and for what is at stake."""


class Asked(Protocol):
    """What the rules look at; deedbox.store.decision.Standing is one."""

    @property
    def state(self) -> str:
        """The approval's state."""
        ...

    @property
    def lapsed(self) -> bool:
        """Whether its time is over."""
        ...

    @property
    def audience(self) -> Sequence[str]:
        """The roles that decide it."""
        ...

    @property
    def subject(self) -> UUID:
        """Whoever asked for the job."""
        ...

    @property
    def quorum(self) -> int:
        """How many distinct people approve it."""
        ...

    @property
    def consequence(self) -> Consequence:
        """What its effects can lead to."""
        ...

    @property
    def required_role(self) -> str | None:
        """The role that its domain names."""
        ...

    @property
    def editors(self) -> Sequence[UUID]:
        """Whoever changed what was proposed."""
        ...

    @property
    def voters(self) -> Sequence[UUID]:
        """Whoever approved it so far."""
        ...

    @property
    def said(self) -> Sequence[UUID]:
        """Whose say that was, in the same order."""
        ...

    @property
    def handed(self) -> Sequence[Handed]:
        """The says that others handed to the person."""
        ...

    @property
    def superseded_by(self) -> UUID | None:
        """The approval that took its place."""
        ...

    @property
    def decided_by(self) -> str | None:
        """The name of whoever ended it."""
        ...

    @property
    def decided_at(self) -> datetime | None:
        """When it ended."""
        ...

    @property
    def reason(self) -> str | None:
        """Why it ended."""
        ...


@dataclass(frozen=True, slots=True)
class Say:
    """By which right a person decides: its own, or one that `holder` handed on."""

    holder: UUID | None = None
    name: str | None = None


def shown_time(moment: datetime) -> str:
    """A moment with its zone, whatever zone the session of the database has."""
    return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"


def require_person(principal: Principal) -> None:
    """Raise DeedboxError person_required for whatever is no person, or did not prove to be one itself."""
    if principal.kind != "person" or principal.method not in PERSONAL:
        raise DeedboxError("person_required", "Only a person decides; a service's key never does, whatever its roles.")
    require_scope(principal, frozenset({"decide"}))


def find_say(principal: Principal, asked: Asked) -> Say:
    """The right by which this person decides. Raises DeedboxError permission_denied with the reason why there is none."""
    audience = frozenset(asked.audience)
    own = principal.has_role(audience) and principal.may("decide")
    says = [] if own else [one for one in asked.handed if _counts(one, asked)]
    wanted = ", ".join(sorted(audience))
    if not own and not says:
        raise DeedboxError("permission_denied", f"Deciding this needs one of these roles: {wanted}.{_over(asked)}")
    if UUID(principal.principal_id) == asked.subject:
        raise DeedboxError("permission_denied", "Whoever asked for it does not decide it; someone else must.")
    if asked.required_role is not None and asked.required_role not in principal.roles:
        sentence = f"What it is about is decided by a person with the role {asked.required_role}, beside one of: {wanted}."
        raise DeedboxError("permission_denied", sentence)
    if own:
        return Say()
    if asked.consequence == "grave":
        raise DeedboxError("permission_denied", f"A grave effect is decided by whoever has one of these roles: {wanted}.")
    free = [one for one in says if one.holder not in asked.said]
    if not free and asked.state == "pending":
        raise DeedboxError("already_decided", f"The say of {says[0].name}, which you have, has been given already.")
    return Say((free or says)[0].holder, (free or says)[0].name)


def _counts(one: Handed, asked: Asked) -> bool:
    """Whether a say that was handed on is one its holder has at this moment."""
    if one.over or one.holder == asked.subject or (one.holder in asked.editors and _shut_out(asked)):
        return False
    holder = Principal(str(one.holder), "", one.name, "person", one.roles, "session")
    return holder.has_role(frozenset(asked.audience)) and holder.may("decide")


def _over(asked: Asked) -> str:
    over = next((one for one in asked.handed if one.over and one.ends), None)
    return "" if over is None else f" The say that {over.name} handed to you is over."


def _shut_out(asked: Asked) -> bool:
    """Whether an editor may not approve at all: a grave effect never, a consequential one where nobody else would."""
    return asked.consequence == "grave" or (asked.consequence not in LOW and asked.quorum == 1)


def require_open(asked: Asked, shown: bytes | None = None, digest: bytes | None = None) -> None:
    """Raise DeedboxError: approval_changed, already_decided or approval_expired, each with who was first and when."""
    if asked.state != "pending":
        who = asked.decided_by or "the clock"
        when = f" at {shown_time(asked.decided_at)}" if asked.decided_at else ""
        if asked.state == "superseded":
            said = f"{who} edited it{when}; what waits now is approval {asked.superseded_by}. Look at it before you decide."
            raise DeedboxError("approval_changed", said)
        if asked.state == "withdrawn":
            why = f" ({asked.reason})" if asked.reason else ""
            raise DeedboxError("already_decided", f"It is withdrawn{when}, because its job was canceled{why}.")
        raise DeedboxError("already_decided", f"It is {asked.state} already, by {who}{when}.")
    if asked.lapsed:
        raise DeedboxError("approval_expired", "Its time is over; nothing was sent and nothing will be.")
    if shown != digest:
        raise DeedboxError("approval_changed", "What was shown is not what waits here now; look again.")


def require_act(principal: Principal, asked: Asked, say: Say, act: Act, door: str) -> None:
    """Raise DeedboxError for what this person may not do to an open approval, or has done."""
    if asked.consequence == "grave" and (principal.method != "session" or door not in GRAVE_DOORS):
        sentence = "A grave effect is decided on its page alone, by a person who is logged in there."
        raise DeedboxError("session_required", sentence)
    me = UUID(principal.principal_id)
    if act == "approve" and _shut_out(asked) and me in asked.editors:
        raise DeedboxError("permission_denied", "You edited it, so another person approves it; you may reject it.")
    if act != "edit" and me in asked.voters:
        raise DeedboxError("already_decided", "You have decided this already; another person's vote is needed.")
    if act != "edit" and say.holder is None and me in asked.said:
        raise DeedboxError("already_decided", "Your say was given already, by whom you handed it to.")


def completes(principal: Principal, asked: Asked, say: Say) -> bool:
    """Whether this approval is the one that moves it: enough distinct people, one of them no editor beyond low consequence."""
    voters = [*asked.voters, UUID(principal.principal_id)]
    says = [*asked.said, say.holder or UUID(principal.principal_id)]
    editors = set(asked.editors)
    fresh = any(not {voter, holder} & editors for voter, holder in zip(voters, says, strict=True))
    return len(voters) >= asked.quorum and (fresh or asked.consequence in LOW)


def why_not(principal: Principal, asked: Asked, door: str) -> str | None:
    """Why this person may not approve it through this door; None where it may."""
    try:
        require_person(principal)
        say = find_say(principal, asked)
        require_open(asked)
        require_act(principal, asked, say, "approve", door)
    except DeedboxError as error:
        return error.detail
    return None
