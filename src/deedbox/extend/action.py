"""An action: a registered operation with its schemas, roles, policy and retries."""

import inspect
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, cast, get_args, get_type_hints

from pydantic import BaseModel

from deedbox.extend import contract
from deedbox.extend.document import Document
from deedbox.extend.follow_up import FollowUp, checked_follow_ups
from deedbox.extend.outcome import Abstain
from deedbox.extend.sensitive import sensitive_paths
from deedbox.model.backoff import Retry, seconds
from deedbox.model.consequence import CONSEQUENCES, Consequence
from deedbox.model.facts import JUDGEMENTS, EffectKind, checked_kind, marked
from deedbox.model.failure import Answer, FailureClass, checked_answers
from deedbox.model.policy import Policy
from deedbox.model.rule_check import Known, faults
from deedbox.model.sensitive import Path

KeyRule = Literal["require", "content", "new"]
Handler = Callable[..., Any]
"""`async def`, which runs on the event loop, or `def`, which runs in a thread."""
KeyFrom = str | Callable[[Any], str | int | None]
KEY_FIELD = "idempotency_key"
MOST_PRIORITY = 1000

_NAME = re.compile(r"^[a-z]+(_[a-z0-9]+)+$")
_ROLE = re.compile(r"^[a-z][a-z0-9_]{0,62}$")
_TOO_WIDE = ("_tool", "_api", "_database")


MOST_TOOL_CALLS = 10_000


@dataclass(frozen=True, slots=True)
class Offer:
    """How an action is offered to agents as a tool.

    `withheld` says why it is not offered, None where it is. `calls` is how many calls of tools one of its own jobs may make.
    `object_id` is the dotted name of the output's member that names the thing, where no receipt does. `task_error` has its
    failures told as the protocol's own. `wait_s` is how long a call waits for its end where the caller does not say, in
    seconds; None: as long as the face that it comes by.
    """

    withheld: str | None = None
    calls: int = 100
    object_id: str | None = None
    task_error: bool = False
    wait_s: float | None = None


class RegistrationError(ValueError):
    """An action or connector that cannot be registered, with the rule it breaks."""


@dataclass(frozen=True, slots=True)
class Action:
    """One registered action. Made by `App.action`; immutable afterwards."""

    name: str
    version: int
    input_model: type[BaseModel]
    output_model: type[BaseModel]
    roles: frozenset[str]
    approvers: frozenset[str]
    policy: Policy
    retry: Retry
    key_rule: KeyRule
    queue: str
    max_runtime_s: float
    title: str
    handler: Handler
    accepts: frozenset[int] = field(default_factory=frozenset[int])
    document_fields: Mapping[str, bool] = field(default_factory=dict[str, bool])
    """The input's fields that hold an upload; True where the field takes a list of them."""
    key_from: KeyFrom | None = None
    priority: int = 100
    deadline_s: float | None = None
    keep_s: float | None = None
    """How long contents of its ended jobs stay, in seconds; None: as long as the installation says."""
    again: frozenset[str] = field(default_factory=frozenset[str])
    """Who may take up or replace its jobs, beside having a role with that verb; none named: whoever has such a role."""
    on_failure: Mapping[FailureClass, Answer] = field(default_factory=dict[FailureClass, Answer])
    """What it says of failure classes; for the others the matrix of deedbox.model.failure decides."""
    callback: str | None = None
    """The registered receiver that is told what becomes of its jobs, where a call names none."""
    mask: bool | tuple[str, ...] = False
    """Where secrets in its input are masked instead of refused: everywhere, or in these fields (dotted names)."""
    data_subject: KeyFrom | None = None
    """Where its input names the person whom it is about: a dotted name, or a function of the validated input."""
    threaded: bool = False
    """Whether its handler is `def` and runs in a thread."""
    kind: EffectKind | None = None
    """What its effects are, where they or their connectors do not say something graver."""
    hold_input: bool = False
    """Whether a person approves its arguments before it runs."""
    judgements: frozenset[str] = JUDGEMENTS
    """The names under which its payloads hold what a model judged."""
    consequence: Consequence = "consequential"
    """What its effects can lead to: who may decide them, and how, depends on it."""
    domain: str | None = None
    domain_role: str | None = None
    """The role that whoever decides its effects must hold beside one of `approvers`; the domain names it."""
    escalate_to: str | None = None
    """The role that may decide as well what has waited for `escalate_after_s` seconds."""
    escalate_after_s: float | None = None
    follow_ups: tuple[FollowUp, ...] = ()
    """What the reader of its finished result may ask for next."""
    offer: Offer = field(default_factory=Offer)
    """How it is offered to agents, and why not where it is not."""

    @property
    def sensitive_input(self) -> tuple[Path, ...]:
        """The paths of what its input marks as sensitive."""
        return sensitive_paths(self.input_model)

    @property
    def sensitive_output(self) -> tuple[Path, ...]:
        """The paths of what its output marks as sensitive."""
        return sensitive_paths(self.output_model)

    @property
    def reads_only(self) -> bool:
        """Whether it can have no effects, whatever its handler does: who may read may run it, with one of its roles."""
        return self.consequence == "read" and self.policy.decision == "allow"

    @property
    def versions(self) -> frozenset[int]:
        """The versions of stored jobs this code can run."""
        return self.accepts | {self.version}


def make_action(
    handler: Handler,
    *,
    version: int,
    roles: frozenset[str],
    approvers: frozenset[str],
    policy: Policy,
    retry: Retry,
    key_rule: KeyRule,
    queue: str,
    max_runtime: str | float,
    accepts: frozenset[int],
    key_from: KeyFrom | None = None,
    priority: int = 100,
    deadline: str | float | None = None,
    again: frozenset[str] = frozenset(),
    keep: str | float | None = None,
    on_failure: Mapping[FailureClass, Answer] | None = None,
    kind: EffectKind | None = None,
    hold_input: bool = False,
    payloads: Mapping[str, type[BaseModel]] | None = None,
    consequence: Consequence = "consequential",
    domain: str | None = None,
    domains: Mapping[str, str | None] | None = None,
    escalate_to: str | None = None,
    escalate_after: str | float | None = None,
    callback: str | None = None,
    mask: bool | Iterable[str] = False,
    data_subject: KeyFrom | None = None,
    follow_ups: Iterable[FollowUp] = (),
    tool: bool | None = None,
    tool_calls: int = 100,
    object_id: str | None = None,
    task_error: bool = False,
    tool_wait: str | float | None = None,
) -> Action:
    """Check a handler and its declaration, against the models of the `payloads` that its app's connectors take.

    Raises RegistrationError naming the action and the rule.
    """
    name = getattr(handler, "__name__", "")
    if not _NAME.fullmatch(name) or name.endswith(_TOO_WIDE):
        raise RegistrationError(f"{name}: an action is named verb_noun and does one operation")
    threaded = not inspect.iscoroutinefunction(handler)
    if inspect.isasyncgenfunction(handler) or inspect.isgeneratorfunction(handler):
        raise RegistrationError(f"{name}: the handler returns its output; it must not yield")
    if threaded and inspect.iscoroutinefunction(inspect.unwrap(handler)):
        raise RegistrationError(f"{name}: the handler is `async def` inside a decorator that is not")
    if version < 1:
        raise RegistrationError(f"{name}: version must be at least 1")
    if not roles:
        raise RegistrationError(f"{name}: roles name who may run it; none is named")
    if not 0 <= priority <= MOST_PRIORITY:
        raise RegistrationError(f"{name}: priority is from 0, the most urgent, to {MOST_PRIORITY}")
    if not isinstance(cast("object", policy), Policy):
        raise RegistrationError(f"{name}: policy is made by hold(), allow(), deny() or rules(…), not {policy!r}")
    if policy.decision == "hold" and not approvers:
        raise RegistrationError(f"{name}: its effects are held, so approvers must name a role")
    if hold_input and not approvers:
        raise RegistrationError(f"{name}: its input is held, so approvers must name a role")
    input_model, output_model = _schemas(name, handler)
    judgements = _check_rules(name, policy, Known(name, roles, output_model, payloads or {}))
    title = (inspect.getdoc(handler) or name.replace("_", " ")).splitlines()[0]
    return Action(
        name=name,
        version=version,
        input_model=input_model,
        output_model=output_model,
        roles=roles,
        approvers=approvers,
        policy=policy,
        retry=retry,
        key_rule=key_rule,
        queue=queue,
        max_runtime_s=seconds(max_runtime, name="max_runtime"),
        title=title,
        handler=handler,
        accepts=accepts,
        document_fields=_document_fields(input_model),
        key_from=_field_of(name, input_model, key_from, "key_from"),
        priority=priority,
        again=again,
        deadline_s=None if deadline is None else seconds(deadline, name="deadline"),
        keep_s=None if keep is None else seconds(keep, name="keep"),
        on_failure=_on_failure(name, on_failure, has_approvers=bool(approvers)),
        callback=callback,
        mask=_mask(name, input_model, mask),
        data_subject=_field_of(name, input_model, data_subject, "data_subject"),
        threaded=threaded,
        kind=_kind(name, kind),
        hold_input=hold_input,
        judgements=judgements,
        consequence=_consequence(name, consequence),
        domain=domain,
        domain_role=_domain_role(name, domain, domains or {}, has_approvers=bool(approvers)),
        escalate_to=escalate_to,
        escalate_after_s=_escalate_after(name, escalate_to, escalate_after, approvers, policy),
        follow_ups=_follow_ups(name, follow_ups),
        offer=_offer(
            name, (input_model, output_model), tool, Offer(None, tool_calls, object_id, task_error, _tool_wait(name, tool_wait))
        ),
    )


def _follow_ups(name: str, given: Iterable[FollowUp]) -> tuple[FollowUp, ...]:
    try:
        return checked_follow_ups(given)
    except ValueError as error:
        raise RegistrationError(f"{name}: {error}") from error


def _offer(
    name: str,
    models: tuple[type[BaseModel], type[BaseModel]],
    tool: bool | None,  # noqa: FBT001 -- what is declared
    declared: Offer,
) -> Offer:
    if not 0 <= declared.calls <= MOST_TOOL_CALLS:
        raise RegistrationError(f"{name}: tool_calls is from 0 to {MOST_TOOL_CALLS}")
    if declared.object_id is not None:
        _field_of(name, models[1], declared.object_id, "object_id")
    if tool is False:
        return replace(declared, withheld="its registration says tool=False")
    found = contract.faults(name, *models)
    if found and tool:
        raise RegistrationError(f"{found[0]}. An action that is a tool keeps the contract of tools")
    return replace(declared, withheld=found[0] if found else None)


def _tool_wait(name: str, wait: str | float | None) -> float | None:
    # Nought is no duration anywhere else; here it says that the number of the job is all that is waited for.
    if wait is None or wait == 0:
        return None if wait is None else 0.0
    try:
        return seconds(wait, name="tool_wait")
    except ValueError as error:
        raise RegistrationError(f"{name}: {error}") from error


def _check_rules(name: str, policy: Policy, known: Known) -> frozenset[str]:
    """The names of judgements among the payloads. Raises RegistrationError for the first rule that cannot stand."""
    judgements = JUDGEMENTS.union(*(marked(payload, "judgement") for payload in known.payloads.values()))
    if policy.by_rules and not policy.rules:
        raise RegistrationError(f"{name}: its policy has no rule; hold() holds everything")
    for fault in faults(policy.rules, replace(known, judgements=judgements)):
        raise RegistrationError(f"{name}: {fault}")
    return judgements


def _kind(name: str, kind: str | None) -> EffectKind | None:
    try:
        return None if kind is None else checked_kind(kind)
    except ValueError as error:
        raise RegistrationError(f"{name}: {error}") from error


def _consequence(name: str, consequence: Consequence) -> Consequence:
    if consequence not in CONSEQUENCES:
        raise RegistrationError(f"{name}: consequence is one of {', '.join(CONSEQUENCES)}")
    return consequence


def _domain_role(name: str, domain: str | None, domains: Mapping[str, str | None], *, has_approvers: bool) -> str | None:
    if domain is None:
        return None
    # A misspelt domain must not be one that needs nobody: every domain that is used is one that the app declares.
    if domain not in domains:
        raise RegistrationError(f"{name}: the app says nothing of the domain {domain!r}; App(domains={{{domain!r}: a role}})")
    role = domains[domain]
    if role is not None and not has_approvers:
        raise RegistrationError(
            f"{name}: effects of the domain {domain!r} are decided by a person, so approvers must name a role"
        )
    return role


def _escalate_after(
    name: str, role: str | None, after: str | float | None, approvers: frozenset[str], policy: Policy
) -> float | None:
    if role is None and after is None:
        return None
    if role is None or after is None:
        raise RegistrationError(f"{name}: escalate_to and escalate_after: set both or neither")
    if not approvers:
        raise RegistrationError(f"{name}: escalate_to names who decides after the approvers, and there are none")
    if not _ROLE.fullmatch(role) or role in approvers:
        raise RegistrationError(f"{name}: escalate_to must be one further role, not one of its approvers")
    after_s = seconds(after, name="escalate_after")
    if after_s >= policy.expires_s:
        raise RegistrationError(f"{name}: escalate_after must come before its approvals lapse, after {policy.expires_s:g} s")
    return after_s


def _on_failure(
    name: str, on_failure: Mapping[FailureClass, Answer] | None, *, has_approvers: bool
) -> dict[FailureClass, Answer]:
    try:
        return checked_answers(on_failure or {}, has_approvers=has_approvers)
    except ValueError as error:
        raise RegistrationError(f"{name}: {error}") from error


def _field_of(name: str, input_model: type[BaseModel], wanted: KeyFrom | None, what: str) -> KeyFrom | None:
    if isinstance(wanted, str):
        first = wanted.split(".")[0]
        known = {info.alias or field_name for field_name, info in input_model.model_fields.items()}
        if first not in known:
            raise RegistrationError(f"{name}: {what} names {first!r}, which is no field of {input_model.__name__}")
    return wanted


def _mask(name: str, input_model: type[BaseModel], wanted: bool | Iterable[str]) -> bool | tuple[str, ...]:  # noqa: FBT001 -- what is declared
    if isinstance(wanted, bool):
        return wanted
    if isinstance(wanted, str):
        raise RegistrationError(f"{name}: mask is True or a list of fields")
    return tuple(str(_field_of(name, input_model, field_name, "mask")) for field_name in wanted)


def _document_fields(input_model: type[BaseModel]) -> dict[str, bool]:
    found: dict[str, bool] = {}
    for name, info in input_model.model_fields.items():
        kinds = {info.annotation, *get_args(info.annotation)}
        if Document in kinds:
            found[info.alias or name] = info.annotation == list[Document]
    return found


def _schemas(name: str, handler: Handler) -> tuple[type[BaseModel], type[BaseModel]]:
    hints = get_type_hints(handler)
    parameters = list(inspect.signature(handler).parameters)
    if len(parameters) != 2:  # noqa: PLR2004 -- the context and the input
        raise RegistrationError(f"{name}: the handler takes a Context and one pydantic model")
    input_model = hints.get(parameters[1])
    returned = hints.get("return")
    candidates: list[Any] = [kind for kind in (get_args(returned) or (returned,)) if kind is not Abstain and kind is not None]
    if not _is_model(input_model):
        raise RegistrationError(f"{name}: the second parameter must be annotated with a pydantic model")
    if len(candidates) != 1 or not _is_model(candidates[0]):
        raise RegistrationError(f"{name}: the return type must be one pydantic model (and Abstain, if it may abstain)")
    return cast("type[BaseModel]", input_model), candidates[0]


def _is_model(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, BaseModel)
