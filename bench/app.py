"""The application that is measured: one action that does nothing, as its users would write it."""

from collections.abc import Callable
from time import monotonic

from pydantic import BaseModel

from bench.note import Note
from deedbox.extend.context import Context
from deedbox.extend.registry import App
from deedbox.model.policy import allow

ACTION = "take_note"
# What an installation has by default; the waiting jobs of a measurement stay far below it.
ROLE = "operator"


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
