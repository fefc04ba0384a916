"""What a connector offers that can say a few words of the house: an alert, or that somebody is asked to decide."""

from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable


@runtime_checkable
class Announces(Protocol):
    """A connector that can be told a subject and a text. Whoever implements it may be named in DEEDBOX_ALERTS_TO."""

    name: str

    def check_target(self, target: str) -> None:
        """Raise ValueError for a target that this connector cannot address. No I/O."""
        ...

    def announcement(self, target: str, subject: str, body: str) -> Mapping[str, Any]:
        """The payload of an effect that says this at a target: plain text, `subject` in one line. No I/O."""
        ...
