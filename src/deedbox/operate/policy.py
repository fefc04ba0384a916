"""Policies as they are, and tried on what was proposed before: what it would have got, beside what it got."""

import json
from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import date, datetime
from typing import Any, cast
from uuid import UUID

from deedbox.extend.action import Action
from deedbox.extend.connector import Connector
from deedbox.extend.context import EffectPlan, recipients_of
from deedbox.extend.sensitive import sensitive_names
from deedbox.gate.judge import Basis, by_group, judge, strictest, wishes
from deedbox.gate.weigh import draw
from deedbox.model.errors import DeedboxError
from deedbox.model.facts import EffectKind, gravest, holds_any
from deedbox.model.identity import Principal
from deedbox.model.rules import Grounds, Rule, Wish, moment
from deedbox.store import places, proposals
from deedbox.store.pool import Pool
from deedbox.store.proposals import Stored
from deedbox.store.transaction import autocommit

MOST_LINES = 500
LONGEST_S = 400 * 86400.0


@dataclass(frozen=True, slots=True)
class RuleView:
    """One rule as people read it; `when` is its condition, or the function's name and version."""

    name: str
    verdict: str
    when: str
    grounds: Mapping[str, Any] | None = None
    window_s: float | None = None
    share: float | None = None


@dataclass(frozen=True, slots=True)
class PolicyView:
    """The policy of an action: its version, what decides where no rule applies, and the rules in order."""

    action: str
    version: str
    otherwise: str
    approvers: tuple[str, ...]
    quorum: int
    expires_s: float
    hold_input: bool
    rules: tuple[RuleView, ...]


@dataclass(frozen=True, slots=True)
class Tried:
    """A group of effects that was proposed: what was decided about it, and what would be decided now."""

    job_id: UUID
    action: str
    group: str
    proposed_at: datetime
    was: str
    was_rule: str
    now: str
    now_rule: str

    @property
    def differs(self) -> bool:
        """Whether something else would become of it."""
        return self.was != self.now


@dataclass(slots=True)
class Trial:
    """What came of trying: how often each verdict was and would be given, the groups that differ, and what could not be tried.

    `counts` are by action, verdict then and verdict now. Of the groups that differ the latest 500 are listed.
    """

    since_s: float
    groups: int = 0
    not_tried: int = 0
    counts: Counter[tuple[str, str, str]] = field(default_factory=Counter[tuple[str, str, str]])
    differing: list[Tried] = field(default_factory=list[Tried])

    def shown(self) -> dict[str, Any]:
        """As JSON has it."""
        table = [
            {"action": action, "was": was, "now": now, "groups": count}
            for (action, was, now), count in sorted(self.counts.items())
        ]
        return {
            "since_s": self.since_s,
            "groups": self.groups,
            "not_tried": self.not_tried,
            "table": table,
            "differing": [asdict(line) for line in self.differing],
        }


def shown(actions: Mapping[str, Action]) -> list[PolicyView]:
    """The policies of these actions, by name."""
    return [_policy(actions[name]) for name in sorted(actions)]


def _policy(action: Action) -> PolicyView:
    policy = action.policy
    views = tuple(
        RuleView(
            rule.name,
            rule.verdict,
            rule.when if isinstance(rule.when, str) else f"{rule.when.__qualname__} version {rule.version}",
            None if rule.grounds is None else asdict(rule.grounds),
            rule.window_s or None,
            rule.share,
        )
        for rule in policy.rules
    )
    approvers = tuple(sorted(action.approvers))
    otherwise = f"{policy.decision}: {policy.rule}"
    return PolicyView(
        action.name, policy.version, otherwise, approvers, policy.quorum, policy.expires_s, action.hold_input, views
    )


class Policies:
    """The policies of an application, over what one installation has kept."""

    def __init__(self, pool: Pool, actions: Mapping[str, Action], connectors: Mapping[str, Connector]) -> None:
        """`actions` and `connectors` are those of the application as it is now."""
        self._pool = pool
        self._actions = actions
        self._connectors = connectors

    def shown(self, principal: Principal) -> list[PolicyView]:
        """The policies, by action. Raises DeedboxError permission_denied."""
        _require_read(principal)
        return shown(self._actions)

    async def tried(self, principal: Principal, since_s: float) -> Trial:
        """Try the rules on what jobs accepted within so many seconds have proposed. Changes nothing.

        Draws, the ceilings of days and the agreement of persons are as they would have been: what a person decided about a
        group counts where the rule would have drawn it. Raises DeedboxError: permission_denied, invalid_parameter.
        """
        _require_read(principal)
        if not 0 < since_s <= LONGEST_S:
            raise DeedboxError("invalid_parameter", "`since` is above zero and at most 400 days.")
        trial, used = Trial(since_s), _Replayed()
        async with autocommit(self._pool) as connection:
            async for stored in proposals.since(connection, principal.tenant, since_s):
                if not stored.effects:
                    continue
                draws = await places.draws(connection, {stored.job_id: self._version(stored.action)})
                for line in self._try(stored, draws[stored.job_id], used):
                    if line is None:
                        trial.not_tried += 1
                        continue
                    trial.groups += 1
                    trial.counts[line.action, line.was, line.now] += 1
                    if line.differs:
                        trial.differing.append(line)
        del trial.differing[:-MOST_LINES]
        return trial

    def _version(self, action: str) -> str:
        known = self._actions.get(action)
        return known.policy.version if known is not None else ""

    def _try(self, stored: Stored, drawn: places.Draw, used: "_Replayed") -> list[Tried | None]:
        was = {str(item["group"]): item for item in stored.verdicts}
        action = self._actions.get(stored.action)
        if action is None or any(effect["body"] is None for effect in stored.effects) or not was:
            return [None for _ in was or {"": None}]
        lines: list[Tried | None] = []
        for group, (now, rule) in self._now(action, stored, drawn, used).items():
            then = was.get(group, {"decision": "hold", "rule": ""})
            lines.append(Tried(stored.job_id, action.name, group, stored.created_at, then["decision"], then["rule"], now, rule))
        return lines

    def _now(self, action: Action, stored: Stored, drawn: places.Draw, used: "_Replayed") -> dict[str, tuple[str, str]]:
        plans = [self._plan(effect, stored) for effect in stored.effects]
        gate = judge(action, plans, None)
        if gate != "weigh":
            return {plan.group: ("deny" if gate == "deny" else "hold", action.policy.rule) for plan in plans}
        output = cast("dict[str, Any]", stored.output) if isinstance(stored.output, dict) else {}
        basis = Basis(
            stored.role,
            stored.facts.get("validation"),
            int(stored.facts.get("repairs") or 0),
            bool(stored.facts.get("sensitive")),
            output,
        )
        found = wishes(action, plans, basis)
        denied = any(item.verdict == "deny" for item in found)
        said = {str(item["group"]): cast("str | None", item.get("said")) for item in stored.verdicts}
        return {
            group: _bounded(of_group, stored, drawn, used, denied=denied, said=said.get(group))
            for group, of_group in by_group(found).items()
        }

    def _plan(self, effect: Mapping[str, Any], stored: Stored) -> EffectPlan:
        connector = self._connectors.get(effect["connector"])
        payload = cast("dict[str, Any]", json.loads(effect["body"])["payload"])
        by_slot = cast("dict[str, dict[str, Any]]", stored.facts.get("effects") or {})
        kept = by_slot.get(effect["slot"], {})
        kind = gravest(cast("EffectKind | None", kept.get("kind")), cast("EffectKind | None", getattr(connector, "kind", None)))
        return EffectPlan(
            connector=effect["connector"],
            target=effect["target"],
            slot=effect["slot"],
            group=effect["group"],
            summary=effect["summary"],
            body=effect["body"].encode(),
            digest=b"",
            kind=kind,
            recipients=recipients_of(connector, effect["target"], payload),
            sensitive=connector is not None and holds_any(payload, sensitive_names(connector.payload_model)),
        )


class _Replayed:
    """What the rules have used up and been told so far, as the days went by."""

    def __init__(self) -> None:
        self.used = Counter[tuple[str, str, date]]()
        self._said: dict[str, deque[bool]] = {}

    def hear(self, rule: Rule, said: str | None) -> None:
        """Keep what a person decided about a group that this rule would have had looked at; an edit is no agreement."""
        if said in {"approved", "rejected", "superseded"}:
            self._said.setdefault(rule.identity, deque(maxlen=places.MOST_COUNTED)).append(said == "approved")

    def agreed(self, rule: Rule) -> tuple[int, int]:
        """With how many of how many persons agreed."""
        said = self._said.get(rule.identity, ())
        return sum(said), len(said)


def _bounded(
    of_group: list[Wish], stored: Stored, drawn: places.Draw, replayed: _Replayed, *, denied: bool, said: str | None
) -> tuple[str, str]:
    """The wish of a group within what can be known of a rule's bounds afterwards."""
    deciding = strictest(of_group)
    if deciding.verdict in {"hold", "deny"}:
        return deciding.verdict, deciding.why
    if denied:
        return "hold", f"{deciding.why}: another group was denied"
    needed = Counter[tuple[str, str, date]]()
    for item in of_group:
        rule = item.rule
        if rule is None or rule.grounds is None:
            continue
        why = _outside(rule, rule.grounds, item, stored, drawn, replayed, said)
        key = (stored.action, rule.name, stored.created_at.date())
        needed[key] += 1
        if why is None and replayed.used[key] + needed[key] > rule.grounds.per_day:
            why = f"the day's {rule.grounds.per_day} are used up"
        if why is not None:
            return "hold", f"{rule.name}: {why}"
    replayed.used.update(needed)
    return deciding.verdict, deciding.why


def _outside(
    rule: Rule, grounds: Grounds, item: Wish, stored: Stored, drawn: places.Draw, replayed: _Replayed, said: str | None
) -> str | None:
    """What keeps a rule from letting the group out, and what a person then said of it; None where nothing does."""
    valid_until = moment(grounds.valid_until)
    if valid_until is None or valid_until <= stored.created_at:
        return "its validity has ended"
    agreed, asked = replayed.agreed(rule)
    below = bool(asked) and agreed / asked < grounds.threshold
    is_drawn = _is_drawn(rule, item, stored, drawn)
    if is_drawn or (below and rule.verdict == "sample"):
        replayed.hear(rule, said)
    if below:
        return f"persons agreed with {agreed} of {asked}, below {grounds.threshold:g}"
    return "drawn" if is_drawn else None


def _is_drawn(rule: Rule, item: Wish, stored: Stored, drawn: places.Draw) -> bool:
    if rule.verdict != "sample":
        return False
    return draw(drawn.secret, stored.job_id, item.slot, drawn.policy_version) < (rule.share or 1)


def _require_read(principal: Principal) -> None:
    if not principal.may("read"):
        raise DeedboxError("permission_denied", "Reading policies needs a role that may read.")
