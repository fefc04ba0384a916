"""What every event stands on: picking, doing with the promises checked, and being drawn."""

from collections.abc import Callable, Coroutine, Sequence
from typing import Any, ClassVar, TypeVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine

from deedbox.model.errors import DeedboxError
from tests.machine.seen import Seen
from tests.machine.world import World

T = TypeVar("T")
ANY = st.integers(0, 7)
TWO = st.integers(0, 1)
Happening = tuple[str, dict[str, Any]]
Method = TypeVar("Method", bound=Callable[..., None])
HAPPENINGS: list[str] = []
ARGUMENTS: dict[str, st.SearchStrategy[dict[str, Any]]] = {}


def may(weight: int = 1, **arguments: st.SearchStrategy[Any]) -> Callable[[Method], Method]:
    """Let a method of the machine happen, drawn so many times as often as another, with these arguments."""

    def keep(method: Method) -> Method:
        HAPPENINGS.extend([method.__name__] * weight)
        ARGUMENTS[method.__name__] = st.fixed_dictionaries(arguments)
        return method

    return keep


def pick(things: Sequence[T], which: int) -> T | None:
    """One of the things, or None where there is none."""
    return things[which % len(things)] if things else None


class Stage(RuleBasedStateMachine):
    """One example: some steps in a world that was emptied before."""

    world: ClassVar[World]

    def __init__(self) -> None:
        super().__init__()
        self.world.begin()

    @property
    def seen(self) -> Seen:
        """What the last look saw."""
        return self.world.book.after

    def do(self, work: Coroutine[Any, Any, T], *refusals: str) -> T | str:
        """Do something, or be refused with one of these codes, which must have changed nothing; then check every promise."""
        answer: T | str
        refused = ""
        try:
            answer = self.world.run(work)
        except DeedboxError as error:
            answer = refused = error.code
        self.world.run(self.world.look())
        assert not refused or refused in refusals, f"refused with {refused}, which is none of {refusals}"
        assert not refused or not self.seen.moves, f"refused with {refused}, and yet: {self.seen.moves}"
        return answer

    def happen(self, happening: Happening) -> None:
        """Let one thing happen, and keep what breaks."""
        name, arguments = happening
        try:
            getattr(self, name)(**arguments)
        except AssertionError as broken:
            self.world.complaints.append(str(broken))
            raise

    def teardown(self) -> None:
        """Kill what still hangs."""
        self.world.run(self.world.end())
