"""Why a person is asked, in words; made from the rule that a verdict names, never by a model."""

from dataclasses import replace
from typing import Any, cast

from pydantic import BaseModel, ValidationError

from deedbox.operate.cards import ApprovalCard, Row

_PLAIN = {
    "hold_every_effect": "Every external effect of this action is decided by a person.",
    "no_effects_expected": "This action was expected to have no effect, so a person decides about the one it proposes.",
    "no rule applies": "None of the action's rules lets this out by itself.",
    "hold_input": "A person approves the arguments of this action before it runs.",
}


def why_asked(rule: str) -> str:
    """The sentence for the rule of a verdict: a name, or a name with what kept it from letting something out."""
    plain = _PLAIN.get(rule)
    if plain is not None:
        return plain
    name, _, kept = rule.partition(": ")
    if not kept:
        return f"The rule “{name}” asks for a person."
    if kept == "drawn":
        return f"The rule “{name}” would let this out; it was drawn for a look by chance."
    return f"The rule “{name}” does not let this out by itself: {kept}."


def with_defaults(given: Any, model: type[BaseModel] | None) -> Any:
    """The arguments as the action will have them: what was sent, and what its model adds where nothing was."""
    if model is None or not isinstance(given, dict):
        return given
    sent = cast("dict[str, Any]", given)
    try:
        whole = model.model_validate(sent).model_dump(mode="json", by_alias=True)
    except ValidationError:
        return sent
    return {**whole, **{name: value for name, value in sent.items() if name not in whole}}


def of_input(card: ApprovalCard, arguments: tuple[Row, ...]) -> ApprovalCard:
    """The card about the arguments of a job: every one of them, and what each answer means for a job that has not run."""
    return replace(
        card,
        purpose="input",
        arguments=arguments,
        sentences=(f"Runs {card.action.replace('_', ' ')} with exactly these arguments.",),
        why_asked=why_asked("hold_input"),
        on_yes="The action runs with exactly these arguments. What it proposes then goes through the gate as always.",
        on_no="The action does not run; the job ends as rejected, with your reason.",
        on_silence="The action does not run; at the deadline the job ends as expired. Silence never approves.",
        validation=None,
    )
