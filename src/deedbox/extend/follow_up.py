"""What the reader of a finished result may ask for next, as its action declares it."""

from collections.abc import Iterable
from dataclasses import dataclass

MOST = 6
"""How many an action may offer: more than fit under a result are read by nobody."""
_LONGEST_LABEL = 40
_LONGEST_MESSAGE = 500


@dataclass(frozen=True, slots=True)
class FollowUp:
    """A next request that a finished job offers: the words on its button, and what is then said in the reader's name.

    Both are fixed when the action is declared. No word of a result gets into them, so that nothing a model or a document said
    can speak for the person who presses the button.
    """

    label: str
    message: str

    def __post_init__(self) -> None:
        """Raises ValueError for a label beyond 40 or a message beyond 500 characters, an empty one, or more than one line."""
        for name, text, most in (("label", self.label, _LONGEST_LABEL), ("message", self.message, _LONGEST_MESSAGE)):
            if not text.strip() or len(text) > most or not text.isprintable():
                raise ValueError(f"a follow-up's {name} is one line of 1 to {most} characters")


def checked_follow_ups(given: Iterable[FollowUp]) -> tuple[FollowUp, ...]:
    """The follow-ups of an action. Raises ValueError for more than six, or for two with one label."""
    follow_ups = tuple(given)
    if len(follow_ups) > MOST:
        raise ValueError(f"follow_ups: at most {MOST} are offered")
    if len({follow_up.label for follow_up in follow_ups}) < len(follow_ups):
        raise ValueError("follow_ups: two have one label")
    return follow_ups
