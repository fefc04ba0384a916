"""The application that is measured: one action that does nothing, as its users would write it."""

from collections.abc import Callable
from time import monotonic
from typing import Annotated, Literal

from pydantic import BaseModel, Field

from deedbox.extend.context import Context
from deedbox.extend.registry import App
from deedbox.model.policy import allow

ACTION = "take_note"
# What an installation has by default; the waiting jobs of a measurement stay far below it.
ROLE = "operator"


class Line(BaseModel):
    """One line of an order."""

    article: Annotated[str, Field(min_length=1, max_length=40)]
    amount: Annotated[int, Field(ge=1, le=1000)]
    price: Annotated[float, Field(ge=0)]


class Note(BaseModel):
    """What the action takes: a number is enough, a whole order of about 1 KB is welcome."""

    number: int
    customer: Annotated[str, Field(max_length=80)] = ""
    language: Literal["en", "de", "fr"] = "en"
    lines: Annotated[list[Line], Field(max_length=50)] = Field(default_factory=list[Line])
    text: Annotated[str, Field(max_length=2000)] = ""


class Taken(BaseModel):
    """What the action answers."""

    number: int


def make_app(began: Callable[[int, float], None] | None = None) -> App:
    """The application; `began` is told the number of each note and the moment (monotonic) of the handler's first line."""
    app = App()

    @app.action(roles=[ROLE], policy=allow())
    async def take_note(_ctx: Context, note: Note) -> Taken:
        at = monotonic()
        if began is not None:
            began(note.number, at)
        return Taken(number=note.number)

    assert list(app.actions) == [ACTION], take_note
    return app


def order(number: str) -> str:
    """The JSON of an order of 1 KB, whose number is given as text so that it can be put in later."""
    line = '{"article":"bracket 40 mm, galvanised","amount":12,"price":3.45}'
    text = "Please deliver to the back entrance; the yard closes at four and the porter has the key to the gate. " * 5
    head = f'{{"number":{number},"customer":"Ödön Szabó & Töchter, Werkstatt Süd","language":"de","lines":['
    return head + ",".join([line] * 6) + f'],"text":"{text.strip()}"}}'
