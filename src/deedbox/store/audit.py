"""The audit: append-only by grant and by trigger, each entry chained to the one before it over the hash of its detail.

The detail lies apart, so that it can be erased without breaking the chain. Against a superuser the chain shows tampering,
it does not prevent it: who rewrites all of it and the head is found only by a head that was exported earlier.
"""

import json
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from deedbox.model.fingerprint import MAX_SAFE_INTEGER, jcs, sha256
from deedbox.model.identity import Principal
from deedbox.store.loader import statement
from deedbox.store.pool import Connection, Pool
from deedbox.store.transaction import autocommit

PAGE = 1000


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """Who did what, on what, through which door, proven how, and why. `detail` is any JSON that has a canonical form."""

    tenant: str
    actor: str
    door: str
    method: str
    verb: str
    subject_kind: str
    subject_id: str
    reason: str | None = None
    detail: Mapping[str, Any] = field(default_factory=dict[str, Any])


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

    def intact(self, seq: int, prev_sha256: bytes) -> bool:
        """Whether this is the entry with that number after that hash, with nothing changed."""
        if (self.seq, self.prev_sha256) != (seq, prev_sha256):
            return False
        if self.detail_json is not None and sha256(jcs(_parse(self.detail_json))) != self.detail_sha256:
            return False
        return self.entry_sha256 == _hash(self.prev_sha256, self.seq, self.at, self.fields(), self.detail_sha256)

    def fields(self) -> list[str | None]:
        """What the hash covers besides number, time and detail, in one order."""
        return [
            self.tenant,
            self.actor,
            self.door,
            self.method,
            self.verb,
            self.subject_kind,
            self.subject_id,
            self.reason,
        ]

    def line(self) -> str:
        """The entry as one line of JSON."""
        value: dict[str, Any] = {
            "seq": self.seq,
            "at": self.at,
            "tenant": self.tenant,
            "actor": self.actor,
            "door": self.door,
            "method": self.method,
            "verb": self.verb,
            "subject_kind": self.subject_kind,
            "subject_id": self.subject_id,
            "reason": self.reason,
            "detail": None if self.detail_json is None else _parse(self.detail_json),
            "detail_sha256": self.detail_sha256.hex(),
            "prev_sha256": self.prev_sha256.hex(),
            "entry_sha256": self.entry_sha256.hex(),
        }
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def entry_by(
    principal: Principal,
    door: str,
    verb: str,
    subject: tuple[str, str],
    *,
    reason: str | None = None,
    detail: Mapping[str, Any] | None = None,
) -> AuditEntry:
    """An entry of what a principal did on a subject (kind, id)."""
    return AuditEntry(
        principal.tenant, principal.actor, door, principal.method, verb, subject[0], subject[1], reason, dict(detail or {})
    )


async def append(connection: Connection, entry: AuditEntry) -> int:
    """Add an entry and return its number. Call it last in a transaction: it locks the end of the chain until the commit.

    Raises InvalidValueError for a detail without a canonical form, RuntimeError where the head is gone.
    """
    detail = jcs(dict(entry.detail))
    cursor = await connection.execute(statement("audit", "head"))
    row = await cursor.fetchone()
    if row is None:
        raise RuntimeError("the audit has lost its head; nothing can be appended")
    seq, prev_sha256, at = int(row[0]) + 1, bytes(row[1]), str(row[2])
    fields = [
        entry.tenant,
        entry.actor,
        entry.door,
        entry.method,
        entry.verb,
        entry.subject_kind,
        entry.subject_id,
        entry.reason,
    ]
    detail_sha256 = sha256(detail)
    await connection.execute(
        statement("audit", "append"),
        {
            "seq": seq,
            "at": at,
            "tenant": entry.tenant,
            "actor": entry.actor,
            "door": entry.door,
            "method": entry.method,
            "verb": entry.verb,
            "subject_kind": entry.subject_kind,
            "subject_id": entry.subject_id,
            "reason": entry.reason,
            "detail_sha256": detail_sha256,
            "prev_sha256": prev_sha256,
            "entry_sha256": _hash(prev_sha256, seq, at, fields, detail_sha256),
            "detail": detail.decode(),
        },
    )
    return seq


async def verify(pool: Pool) -> int | None:
    """The number of the first entry that is missing or was changed, or None where the chain is whole up to its head."""
    async with autocommit(pool) as connection:
        until, head_sha256 = await head(connection)
    seq, prev_sha256 = 0, bytes(32)
    async for stored in entries(pool, until=until):
        if not stored.intact(seq + 1, prev_sha256):
            return seq + 1
        seq, prev_sha256 = stored.seq, stored.entry_sha256
    if seq < until:
        return seq + 1
    return None if prev_sha256 == head_sha256 else until


async def head(connection: Connection) -> tuple[int, bytes]:
    """Number and hash of the last entry."""
    cursor = await connection.execute(statement("audit", "read_head"))
    row = await cursor.fetchone()
    return (int(row[0]), bytes(row[1])) if row else (0, bytes(32))


async def entries(pool: Pool, *, after: int = 0, until: int) -> AsyncIterator[Stored]:
    """All entries after one number up to another, read in pages; no transaction stays open between them."""
    while True:
        async with autocommit(pool) as connection:
            cursor = await connection.execute(statement("audit", "page"), {"after": after, "until": until, "limit": PAGE})
            page = [Stored(*row) for row in await cursor.fetchall()]
        for stored in page:
            yield stored
        if len(page) < PAGE:
            return
        after = page[-1].seq


async def export(pool: Pool) -> AsyncIterator[str]:
    """All entries as lines of JSON, and a last line with the head, to be kept where this database's superuser cannot reach."""
    async with autocommit(pool) as connection:
        until, head_sha256 = await head(connection)
    async for stored in entries(pool, until=until):
        yield stored.line()
    yield json.dumps({"head": {"seq": until, "entry_sha256": head_sha256.hex()}}, separators=(",", ":"))


def _hash(prev_sha256: bytes, seq: int, at: str, fields: list[str | None], detail_sha256: bytes) -> bytes:
    return sha256(prev_sha256 + jcs([seq, at, fields, detail_sha256.hex()]))


def _parse(text: str) -> Any:
    """JSON whose numbers are what they were: jsonb prints 1e25 as digits, which canonical JSON does not take as an integer."""
    return json.loads(text, parse_int=_number)


def _number(digits: str) -> int | float:
    value = int(digits)
    return value if abs(value) <= MAX_SAFE_INTEGER else float(digits)
