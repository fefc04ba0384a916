"""Which actions are offered to whom, and as what: schemas, words and annotations that are derived and true."""

import inspect
from collections.abc import Mapping

from deedbox.extend.action import Action
from deedbox.extend.contract import input_schema, output_schema
from deedbox.model.identity import Principal
from deedbox.operate.tools.envelope import Tool


class Catalogue:
    """The tools of an application. Asks no database; schemas are made once."""

    def __init__(self, actions: Mapping[str, Action]) -> None:
        """`actions` are those that this process serves."""
        self._actions = {name: action for name, action in sorted(actions.items()) if action.offer.withheld is None}
        self._tools: dict[str, Tool] = {}

    def action(self, name: str) -> Action | None:
        """An action that is offered, or None."""
        return self._actions.get(name)

    def of(self, who: Principal) -> tuple[Tool, ...]:
        """What somebody may call, sorted by name."""
        return tuple(self.tool(action) for action in self._actions.values() if may_run(who, action))

    def tool(self, action: Action) -> Tool:
        """An action as it is offered."""
        made = self._tools.get(action.name)
        if made is None:
            made = self._tools[action.name] = _tool(action)
        return made


def may_run(who: Principal, action: Action) -> bool:
    """Whether somebody may run an action at all: one of its roles, and the verb that it takes."""
    verb = who.may("submit") or (action.reads_only and who.may("read"))
    return verb and who.has_role(action.roles)


def annotations(action: Action) -> dict[str, bool]:
    """What is true of a tool, whoever calls it: no hint is a wish of its author.

    `read_only`: it can have no effects, because the worker refuses any that it plans. `destructive`: what it leads to may not
    be undone, as its `consequence` says. `idempotent`: an equal call has no further effect, however much later it comes.
    `open_world`: it may reach others; what code reads cannot be told, so every tool says so.
    """
    return {
        "read_only": action.reads_only,
        "destructive": not action.reads_only and action.consequence not in {"read", "reversible"},
        "idempotent": action.reads_only or action.key_from is not None or action.key_rule == "content",
        "open_world": True,
    }


def _tool(action: Action) -> Tool:
    return Tool(
        name=action.name,
        title=action.title.rstrip("."),
        description=_description(action),
        input_schema=input_schema(action.input_model),
        output_schema=output_schema(action.output_model),
        version=action.version,
        annotations=annotations(action),
        task_error=action.offer.task_error,
    )


def _description(action: Action) -> str:
    words = (inspect.getdoc(action.handler) or action.title).strip()
    if action.reads_only:
        more = "It changes nothing."
    elif action.hold_input:
        more = "A person approves the arguments before it runs."
    elif action.policy.decision == "deny":
        more = "It drafts and never acts."
    elif action.approvers:
        more = "What it does outside may wait for a person's approval; until then the answer is `pending`."
    else:
        more = ""
    return f"{words}\n\n{more}".strip()
