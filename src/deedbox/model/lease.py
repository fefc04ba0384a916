"""One duration, the lease, from which every other one that must agree with it is derived."""

from dataclasses import dataclass

from deedbox.model.backoff import seconds

SHORTEST_S = 0.5


@dataclass(frozen=True, slots=True)
class Lease:
    """A lease of `length` seconds and what follows from it.

    At least three beats fit into a lease (pgqueuer#430: an interval at or above the time-out), a holder stops itself
    before the database lets anyone else in, and `cap` bounds the total life of one attempt's lease.
    """

    length: float = 30.0
    cap: float = 3600.0

    def __post_init__(self) -> None:
        """Raises ValueError for lengths that cannot work."""
        seconds(self.length, name="lease")
        seconds(self.cap, name="lease_cap")
        if self.length < SHORTEST_S:
            raise ValueError(f"lease: {self.length} s is too short; 0.5 s is the least")
        if self.cap < self.length:
            raise ValueError("lease_cap: must not be below the lease")

    @property
    def beat(self) -> float:
        """Seconds between renewals."""
        return self.length / 5

    @property
    def flags(self) -> float:
        """Seconds between looks at the cancel flag; cancel reaches a handler within about this time."""
        return min(1.5, self.beat)

    @property
    def trust(self) -> float:
        """Seconds after a renewal was sent during which the holder may believe it, by its monotonic clock."""
        return self.length * 0.8

    @property
    def margin(self) -> float:
        """Seconds by which a holder stops itself before its lease ends, at the end of the lease's total life too."""
        return self.length - self.trust

    @property
    def sweep(self) -> float:
        """Seconds between looks for leases that ran out."""
        return min(5.0, self.length / 3)
