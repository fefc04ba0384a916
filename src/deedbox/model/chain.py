"""The links of the audit's chain: how an entry is hashed, and how a chain is followed, in the database or in a file of its own.

An entry's hash covers the hash of the one before it, its number, its time, what it says, and the hash of its detail. So a
detail can be erased and the chain still followed; nothing else can go, change or change places without being seen.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Self, cast

from deedbox.model.fingerprint import MAX_SAFE_INTEGER, jcs, sha256

FIELDS = ("tenant", "actor", "door", "method", "verb", "subject_kind", "subject_id", "reason")
"""What the hash covers besides number, time and detail, in this order."""
HASH_BYTES = 32
_HASHES = ("detail_sha256", "prev_sha256", "entry_sha256")


@dataclass(frozen=True, slots=True)
class Head:
    """Where a chain ends: the number of its last entry and the hash of it."""

    seq: int
    entry_sha256: bytes

    @classmethod
    def read(cls, text: str) -> Self:
        """A head as it is written, `NUMBER:HASH` or the last line of an export. Raises ValueError for anything else."""
        text = text.strip()
        if text.startswith("{"):
            head = cast("dict[str, Any]", json.loads(text)).get("head")
            if not isinstance(head, dict):
                raise ValueError("the line holds no head")
            found = cast("dict[str, Any]", head)
            number, digits = found.get("seq"), found.get("entry_sha256")
        else:
            number, _, digits = text.partition(":")
        made = cls(int(str(number)), bytes.fromhex(str(digits)))
        if made.seq < 0 or len(made.entry_sha256) != HASH_BYTES:
            raise ValueError("a head is the number of an entry and the 64 digits of its hash")
        return made


@dataclass(frozen=True, slots=True)
class Stored:
    """An entry as it lies in the chain; `detail_json` is None where the detail was erased."""

    seq: int
    at: str
    tenant: str
    actor: str
    door: str
    method: str
    verb: str
    subject_kind: str
    subject_id: str
    reason: str | None
    detail_sha256: bytes
    prev_sha256: bytes
    entry_sha256: bytes
    detail_json: str | None

    @property
    def detail(self) -> Any:
        """The detail as it was given; None where it was erased."""
        return None if self.detail_json is None else parsed(self.detail_json)

    def fault(self) -> str | None:
        """What of the entry was changed, in words; None where it is as it was written."""
        if self.detail_json is not None and sha256(jcs(self.detail)) != self.detail_sha256:
            return "its detail was changed"
        fields = [cast("str | None", getattr(self, name)) for name in FIELDS]
        if self.entry_sha256 != entry_hash(self.prev_sha256, self.seq, self.at, fields, self.detail_sha256):
            return "it was changed"
        return None

    def values(self) -> dict[str, Any]:
        """The entry by the names of its parts, hashes in hexadecimal."""
        told: dict[str, Any] = {"seq": self.seq, "at": self.at}
        told |= {name: getattr(self, name) for name in FIELDS}
        told["detail"] = self.detail
        return told | {name: cast("bytes", getattr(self, name)).hex() for name in _HASHES}

    def line(self) -> str:
        """The entry as one line of JSON."""
        return _encode(self.values())

    def link(self) -> str:
        """The entry as one line of JSON without what it says: whoever may not read it can follow the chain over it."""
        hashes = {"prev_sha256": self.prev_sha256.hex(), "entry_sha256": self.entry_sha256.hex()}
        return _encode({"seq": self.seq, "withheld": True, **hashes})


@dataclass(slots=True)
class Walk:
    """Follows a chain entry by entry and remembers the first link that is broken.

    Give every entry to `step` until it says no. `first_broken` is the number of the entry that is missing or was changed.
    With `exported`, a head that was kept elsewhere, a chain is found as well that was cut off or written anew and is whole
    in itself.
    """

    exported: Head | None = None
    seq: int = 0
    entry_sha256: bytes = field(default=bytes(HASH_BYTES))
    entries: int = 0
    erased: int = 0
    withheld: int = 0
    first_broken: int | None = None
    why: str | None = None

    def step(self, entry: Stored) -> bool:
        """Take the next entry; False where the chain is broken, here or before."""
        if self._linked(entry.seq, entry.prev_sha256) and (fault := entry.fault()) is not None:
            self.breaks(entry.seq, fault)
        return self._taken(entry.seq, entry.entry_sha256, erased=entry.detail_json is None)

    def step_over(self, seq: int, prev_sha256: bytes, entry_sha256: bytes) -> bool:
        """Take an entry of which only its link is to be seen."""
        self._linked(seq, prev_sha256)
        self.withheld += 1
        return self._taken(seq, entry_sha256)

    def ends_at(self, head: Head) -> None:
        """Say where the chain should have ended."""
        if self.first_broken is not None:
            return
        if self.exported is not None and self.exported.seq > max(head.seq, self.seq):
            self.breaks(self.seq + 1, f"it is missing: the head that was kept names entry {self.exported.seq}")
        if self.seq < head.seq:
            self.breaks(self.seq + 1, f"it is missing, and so is all up to {head.seq}")
        elif self.seq == head.seq and self.entry_sha256 != head.entry_sha256:
            self.breaks(head.seq, "it is not the one that the head names")

    def breaks(self, seq: int, why: str) -> None:
        """Note the first broken link; later ones do not matter."""
        if self.first_broken is None:
            self.first_broken, self.why = seq, why

    def _linked(self, seq: int, prev_sha256: bytes) -> bool:
        if seq != self.seq + 1:
            self.breaks(self.seq + 1, "it is missing" if seq > self.seq else "it is not where it was")
        elif prev_sha256 != self.entry_sha256:
            self.breaks(seq, "it does not continue the one before it")
        return self.first_broken is None

    def _taken(self, seq: int, entry_sha256: bytes, *, erased: bool = False) -> bool:
        if self.first_broken is None:
            self.seq, self.entry_sha256 = seq, entry_sha256
            self.entries += 1
            self.erased += erased
            if self.exported is not None and self.exported.seq == seq and self.exported.entry_sha256 != entry_sha256:
                self.breaks(seq, "it is not the one that the head that was kept names")
        return self.first_broken is None


def last_line(head: Head, *, first: int, last: int, entries: int) -> str:
    """What ends an export: the head of the whole chain, and what the lines before hold, so that a cut is seen."""
    named = {"seq": head.seq, "entry_sha256": head.entry_sha256.hex()}
    return _encode({"head": named, "first": first, "last": last, "entries": entries})


def walk_lines(lines: Iterable[str], exported: Head | None = None) -> Walk:
    """Follow the chain in the lines of an export, which is believed for the link before its first entry and no more.

    One line is in memory at a time. A file without its last line was cut off. Raises ValueError for a line that is none of an
    export, with its number.
    """
    walk, first, end = Walk(exported), None, None
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        if end is not None:
            raise ValueError(f"line {number}: there is more after the line that ends an export")
        try:
            value = cast("dict[str, Any]", parsed(line))
            if "head" in value:
                end = value
                continue
            hashes = {name: bytes.fromhex(value[name]) for name in _HASHES if name in value}
            if first is None:
                first = int(value["seq"])
                walk.seq, walk.entry_sha256 = first - 1, hashes["prev_sha256"]
                if first == 1 and any(walk.entry_sha256):
                    walk.breaks(1, "it does not begin the chain")
            if value.get("withheld") is True:
                walk.step_over(int(value["seq"]), hashes["prev_sha256"], hashes["entry_sha256"])
            else:
                walk.step(_of_line(value, hashes))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise ValueError(f"line {number}: it is not a line of an export") from error
    _end(walk, first, end)
    return walk


def _of_line(value: dict[str, Any], hashes: dict[str, bytes]) -> Stored:
    detail = None if value["detail"] is None else _encode(value["detail"])
    told: list[Any] = [*(value[name] for name in FIELDS), *(hashes[name] for name in _HASHES), detail]
    return Stored(int(value["seq"]), str(value["at"]), *told)


def _end(walk: Walk, first: int | None, end: dict[str, Any] | None) -> None:
    if end is None:
        walk.breaks(walk.seq + 1, "the file was cut off: the line that ends an export is not there")
        return
    head, last, entries = Head.read(_encode(end)), int(end["last"]), int(end["entries"])
    if entries != walk.entries or (entries and (last != walk.seq or int(end["first"]) != first)):
        walk.breaks(walk.seq + 1, f"the file should hold {entries} entries up to {last}")
    # An export of a time ends before the head does.
    walk.ends_at(head if head.seq == walk.seq else Head(walk.seq, walk.entry_sha256))


def entry_hash(prev_sha256: bytes, seq: int, at: str, fields: list[str | None], detail_sha256: bytes) -> bytes:
    """The hash of an entry over the one before it; `fields` are those of FIELDS."""
    return sha256(prev_sha256 + jcs([seq, at, fields, detail_sha256.hex()]))


def parsed(text: str) -> Any:
    """JSON whose numbers are what they were: jsonb prints 1e25 as digits, which canonical JSON does not take as an integer."""
    return json.loads(text, parse_int=_number)


def _number(digits: str) -> int | float:
    value = int(digits)
    return value if abs(value) <= MAX_SAFE_INTEGER else float(digits)


def _encode(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
