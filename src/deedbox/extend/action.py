"""An action: a registered operation with its schemas, roles, policy and retries."""

import inspect
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, cast, get_args, get_type_hints

from pydantic import BaseModel

from deedbox.extend.document import Document
from deedbox.extend.outcome import Abstain
from deedbox.extend.sensitive import sensitive_paths
from deedbox.model.backoff import Retry, seconds
from deedbox.model.failure import Answer, FailureClass, checked_answers
from deedbox.model.policy import Policy
from deedbox.model.sensitive import Path

KeyRule = Literal["require", "content", "new"]
Handler = Callable[..., Any]
"""`async def`, which runs on the event loop, or `def`, which runs in a thread."""
KeyFrom = str | Callable[[Any], str | int | None]
KEY_FIELD = "idempotency_key"
MOST_PRIORITY = 1000

_NAME = re.compile(r"^[a-z]+(_[a-z0-9]+)+$")
_TOO_WIDE = ("_tool", "_api", "_database")


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
    mask: bool | tuple[str, ...] = False
    """Where secrets in its input are masked instead of refused: everywhere, or in these fields (dotted names)."""
    data_subject: KeyFrom | None = None
    """Where its input names the person whom it is about: a dotted name, or a function of the validated input."""
    threaded: bool = False
    """Whether its handler is `def` and runs in a thread."""

    @property
    def sensitive_input(self) -> tuple[Path, ...]:
        """The paths of what its input marks as sensitive."""
        return sensitive_paths(self.input_model)

    @property
    def sensitive_output(self) -> tuple[Path, ...]:
        """The paths of what its output marks as sensitive."""
        return sensitive_paths(self.output_model)

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
    mask: bool | Iterable[str] = False,
    data_subject: KeyFrom | None = None,
) -> Action:
    """Check a handler and its declaration. Raises RegistrationError naming the action and the rule."""
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
    if policy.decision == "hold" and not approvers:
        raise RegistrationError(f"{name}: its effects are held, so approvers must name a role")
    input_model, output_model = _schemas(name, handler)
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
        mask=_mask(name, input_model, mask),
        data_subject=_field_of(name, input_model, data_subject, "data_subject"),
        threaded=threaded,
    )


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
