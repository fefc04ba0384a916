"""What is refused at registration: actions that agents could not be given safely, each named with the field."""

from collections.abc import Callable
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, ConfigDict, Field

from deedbox import Reason
from deedbox.extend.action import RegistrationError
from deedbox.extend.context import Context
from deedbox.extend.contract import input_schema
from deedbox.extend.document import Document
from deedbox.extend.registry import App
from deedbox.model.policy import allow
from tests.guarantees import proves

Short = Annotated[str, Field(max_length=60)]


class Good(BaseModel):
    """Keeps the contract."""

    name: Short
    size: Literal["small", "large"] = "small"
    parts: dict[Annotated[str, Field(max_length=20)], Annotated[int, Field(ge=0)]] = Field(default_factory=dict, max_length=4)


class Inner(BaseModel):
    """A text without a longest length, below another model."""

    text: str


class Loose(BaseModel):
    """A text without a longest length."""

    text: str


class Nested(BaseModel):
    """The same, further down."""

    inners: list[Inner]


class Anything(BaseModel):
    """A field that takes anything."""

    given: Any


class FreeForm(BaseModel):
    """An object whose members nobody names."""

    fields: dict[str, Any]


class Extra(BaseModel):
    """An object that names some members and takes more, which a tool's schema closes."""

    model_config = ConfigDict(extra="allow")
    name: Short


class History(BaseModel):
    """A whole conversation, without a reason."""

    chat_history: list[Short]


class Explained(BaseModel):
    """The same, with one."""

    history: Annotated[list[Short], Reason("the last lines decide about the tone")]
    message: Short


class Paper(BaseModel):
    """An upload, which an agent cannot send and therefore names."""

    file: Document


class MaybePaper(BaseModel):
    """An upload that may be missing."""

    name: Short
    file: Document | None = None


def register(given: type[BaseModel], made: type[BaseModel] = Good, name: str = "make_thing", **more: Any) -> App:
    """Register an action with these models."""
    app = App()

    async def handler(_ctx: Context, _given: Any) -> Any:
        """Make a thing."""
        return None

    handler.__name__ = name
    handler.__annotations__ = {"_ctx": Context, "_given": given, "return": made}
    declared: dict[str, Any] = {"roles": ["operator"], "policy": allow(), "tool": True} | more
    app.action(**declared)(handler)
    return app


@proves("G-TOOL-CONTRACT")
@pytest.mark.parametrize(
    ("attempt", "said"),
    [
        (lambda: register(Loose), "make_thing: input /text is a text without a longest length"),
        (lambda: register(Good, Loose), "make_thing: output /text is a text without a longest length"),
        (lambda: register(Nested), "#Inner/text is a text without a longest length"),
        (lambda: register(Anything), "make_thing: input /given takes anything"),
        (lambda: register(FreeForm), "make_thing: input /fields is a free-form object"),
        (lambda: register(Good, FreeForm), "make_thing: output /fields is a free-form object"),
        (lambda: register(History), "make_thing: input /chat_history may hold a whole conversation"),
        (lambda: register(Good, name="crm_tool"), "an action is named verb_noun"),
        (lambda: register(Good, name="crm_api"), "an action is named verb_noun"),
        (lambda: register(Good, name="use_database"), "an action is named verb_noun"),
        (lambda: register(Good, name="create"), "an action is named verb_noun"),
        (lambda: register(Good, roles=[]), "roles name who may run it"),
        (lambda: register(dict), "must be annotated with a pydantic model"),  # pyright: ignore[reportArgumentType]
        (lambda: register(Good, dict), "the return type must be one pydantic model"),  # pyright: ignore[reportArgumentType]
        (lambda: register(Good, tool_calls=-1), "tool_calls is from 0"),
        (lambda: register(Good, object_id="nothing"), "object_id names 'nothing'"),
        (lambda: register(Good, tool_wait="soon"), "tool_wait: 'soon' is not a duration"),
        (lambda: register(Good, tool_wait=-1), "tool_wait: -1 must be above zero"),
    ],
)
def test_what_agents_cannot_be_given_is_refused(attempt: Callable[[], App], said: str) -> None:
    """The error names the action, the field and the rule."""
    with pytest.raises(RegistrationError) as caught:
        attempt()
    assert said in str(caught.value)


@proves("G-TOOL-CONTRACT")
@pytest.mark.parametrize("given", [Good, Extra, Explained, Paper, MaybePaper])
def test_what_keeps_the_contract_is_a_tool(given: type[BaseModel]) -> None:
    """It is offered, under a schema that refuses what it does not name."""
    (action,) = register(given).actions.values()
    assert action.offer.withheld is None
    schema = input_schema(action.input_model)
    assert schema["additionalProperties"] is False
    if "file" in schema["properties"]:
        assert list(schema["$defs"]["Document"]["properties"]) == ["document_id"]


@proves("G-TOOL-CONTRACT")
def test_without_a_word_only_what_keeps_it_is_offered() -> None:
    """What says nothing is offered where it can be, and says why where it cannot; `tool=False` is offered to nobody."""
    (loose,) = register(Loose, tool=None).actions.values()
    assert loose.offer.withheld == "make_thing: input /text is a text without a longest length: set max_length"
    (good,) = register(Good, tool=None).actions.values()
    assert good.offer.withheld is None
    (inside,) = register(Good, tool=False).actions.values()
    assert inside.offer.withheld == "its registration says tool=False"
