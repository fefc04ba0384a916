"""What a promise is."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Guarantee:
    """A promise: its id (`G-…`), what is promised in one sentence, and the part of the design it comes from."""

    id: str
    promise: str
    source: str
