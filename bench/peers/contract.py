"""What the bench asks of a peer; the modules named after the peers answer it with the peers' own calls."""

from collections.abc import Callable, Sequence
from typing import Any, Literal, Protocol, TypeAlias

Pace: TypeAlias = Literal["drain", "light"]
Began: TypeAlias = Callable[[int], None]
Payload: TypeAlias = dict[str, Any]


class Member(Protocol):
    """A peer on one database. Made with the database's URL."""

    def __init__(self, url: str) -> None:
        """Opens nothing."""
        ...

    async def install(self) -> None:
        """Make its tables, and its queue where queues have to be made."""
        ...

    async def open(self, connections: int) -> None:
        """Get ready to put, with so many connections."""
        ...

    async def put(self, payload: Payload) -> None:
        """Put one job; returns when it is committed."""
        ...

    async def put_many(self, payloads: Sequence[Payload]) -> None:
        """Put many jobs in the way that the peer has for it; returns when all are committed."""
        ...

    async def work(self, began: Began, pace: Pace) -> None:
        """Run one worker process' worth of jobs until cancelled; each handler's first line tells `began` its job's number."""
        ...
