"""Which lanes a claim looks into, and how much of each it may take: every lane gets its share.

A lane that filled its last share has more: such lanes divide most of the next claim between them, and go on from where the
last one ended, past the rows that others hold and the dead versions of those that ran. The rest are tried with a small share,
so that a tenant with three jobs does not wait behind one with a million. The place in a lane is a hint that this process
keeps to itself: what was requeued behind it is found at the next `refresh`, a second later at most.
"""

from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from deedbox.store.lanes import Rooms
from deedbox.store.queue import FIRST, Claimed, Share

MOST_LANES = 32
"""Of one claim. With more lanes than this the worker asks first which are ready."""
TRIAL = 4
"""What a lane that is not known to have more may take."""


@dataclass(slots=True)
class _Place:
    """One lane and action version: where the next claim goes on, and whether there is likely more."""

    lane_id: int
    version: int
    cap_s: float
    limited: bool
    hot: bool = False
    from_priority: int = 0
    from_job_id: UUID = FIRST


class Rota:
    """The lanes of one worker in rotation."""

    def __init__(self) -> None:
        """Nothing is served until `refresh`."""
        self._places: deque[_Place] = deque()

    @property
    def lane_ids(self) -> list[int]:
        """The lanes served."""
        return list(dict.fromkeys(place.lane_id for place in self._places))

    @property
    def limited(self) -> list[int]:
        """The lanes served that have a limit."""
        return list(dict.fromkeys(place.lane_id for place in self._places if place.limited))

    def refresh(self, served: Sequence[tuple[int, Sequence[int], float, bool]]) -> None:
        """Serve these lanes: id, the versions that can run, the cap on a lease's life, and whether the lane has a limit.

        Every lane is read from its beginning again.
        """
        wanted = {(lane_id, version): (cap_s, limited) for lane_id, versions, cap_s, limited in served for version in versions}
        kept = [place for place in self._places if (place.lane_id, place.version) in wanted]
        known = {(place.lane_id, place.version) for place in kept}
        for place in kept:
            place.cap_s, place.limited = wanted[place.lane_id, place.version]
            place.from_priority, place.from_job_id = 0, FIRST
        fresh = [_Place(*at, *about) for at, about in wanted.items() if at not in known]
        self._places = deque([*kept, *fresh])

    def plan(self, room: int, *, ready: frozenset[int] | None = None, limits: Rooms | None = None) -> list[Share]:
        """Shares of a claim of `room` jobs, in the order in which lanes are served; together they may come to more.

        `ready` narrows it to lanes known to have something; `limits` says how many more may run in each lane that has a limit
        or shares one, and such a lane that is not in it is left out. Lanes that were served longest ago come first, those that
        are only tried before those that have more.
        """
        left = limits or Rooms({})
        candidates = [place for place in self._places if self._open(place, ready, left)]
        hot = [place for place in candidates if place.hot]
        trial = [place for place in candidates if not place.hot][: MOST_LANES - min(len(hot), MOST_LANES // 2)]
        hot = hot[: MOST_LANES - len(trial)]
        # With nothing hot the whole claim is divided among the lanes that are tried.
        tried = min(room, TRIAL if hot else max(TRIAL, -(-room // max(1, len(trial)))))
        shares: list[Share] = []
        for place in trial:
            self._share(shares, place, tried, left)
        for place in hot:
            self._share(shares, place, -(-room // len(hot)), left)
        return shares

    def learn(self, shares: Sequence[Share], claimed: Sequence[Claimed], room: int) -> bool:
        """Remember what a claim of `room` jobs found; True when there may be more right away."""
        taken = Counter((item.lane_id, item.version) for item in claimed)
        last: dict[tuple[int, int], tuple[int, UUID]] = {}
        for item in claimed:
            at = (item.lane_id, item.version)
            last[at] = max(last.get(at, (0, FIRST)), (item.priority, item.job_id))
        rooms = {(share.lane_id, share.version): share.room for share in shares}
        full = len(claimed) >= room
        more, waiting, served = full, deque[_Place](), deque[_Place]()
        for place in self._places:
            at = (place.lane_id, place.version)
            if at in taken:
                # Filled, or cut off by the claim's own limit: go on from here. Otherwise the lane was read to its end.
                place.hot = full or taken[at] >= rooms[at]
                place.from_priority, place.from_job_id = last[at] if place.hot else (0, FIRST)
                more = more or place.hot
            elif at in rooms and not full:
                place.hot, place.from_priority, place.from_job_id = False, 0, FIRST
            # A full claim may have ended before it came to this lane: it keeps its turn.
            (served if at in taken or (at in rooms and not full) else waiting).append(place)
        self._places = waiting + served
        return more

    @staticmethod
    def _open(place: _Place, ready: frozenset[int] | None, left: Rooms) -> bool:
        if ready is not None and place.lane_id not in ready:
            return False
        return not place.limited or left.of(place.lane_id) > 0

    @staticmethod
    def _share(shares: list[Share], place: _Place, room: int, left: Rooms) -> None:
        if place.limited:
            room = left.take(place.lane_id, room)
        if room > 0:
            shares.append(Share(place.lane_id, place.version, place.cap_s, room, place.from_priority, place.from_job_id))
