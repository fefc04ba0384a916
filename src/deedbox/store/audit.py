"""The audit: append-only by grant and by trigger, each entry chained to the one before it over the hash of its detail.

The detail lies apart, so that it can be erased without breaking the chain. Against a superuser the chain shows tampering,
it does not prevent it: who rewrites all of it and the head is found only by a head that was exported earlier.
"""

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from deedbox.model.audited import VERBS
from deedbox.model.chain import HASH_BYTES, Head, Stored, Walk, entry_hash
from deedbox.model.fingerprint import jcs, sha256
from deedbox.model.identity import Principal
from deedbox.store.loader import statement
from deedbox.store.pool import Connection, Pool
from deedbox.store.transaction import autocommit

PAGE = 500


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
class End:
    """Where the chain ends by its head, and the number of the last entry that is there."""

    head: Head
    newest: int


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

    Raises InvalidValueError for a detail without a canonical form, ValueError for a verb that is not one of
    `deedbox.model.audited`, RuntimeError where the head is gone.
    """
    if entry.verb not in VERBS:
        raise ValueError(f"the audit knows no verb {entry.verb!r}: say in deedbox.model.audited what it means")
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
            "entry_sha256": entry_hash(prev_sha256, seq, at, fields, detail_sha256),
            "detail": detail.decode(),
        },
    )
    return seq


async def read_end(connection: Connection) -> End:
    """Where the chain ends now, without a lock."""
    cursor = await connection.execute(statement("audit", "read_head"))
    row = await cursor.fetchone()
    return End(Head(int(row[0]), bytes(row[1])), int(row[2])) if row else End(Head(0, bytes(HASH_BYTES)), 0)


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


async def span(connection: Connection, since: datetime | None, until: datetime | None) -> tuple[int, int]:
    """The numbers of the first and the last entry of a time; (1, 0) where there is none. What lies between belongs to it."""
    cursor = await connection.execute(statement("audit", "span"), {"since": since, "until": until})
    row = await cursor.fetchone()
    return (int(row[0]), int(row[1])) if row and row[0] is not None else (1, 0)


async def listed(
    connection: Connection,
    tenant: str,
    *,
    actor: str | None,
    verb: str | None,
    subject: str | None,
    since: datetime | None,
    until: datetime | None,
    before: int | None,
    limit: int,
) -> list[Stored]:
    """Entries of a tenant below a number, newest first; a filter that is None lets everything pass."""
    wanted = {"tenant": tenant, "actor": actor, "verb": verb, "since": since, "until": until, "before": before, "limit": limit}
    name = "listed" if subject is None else "of_subject"
    cursor = await connection.execute(statement("audit", name), {**wanted, "subject": subject})
    return [Stored(*row) for row in await cursor.fetchall()]


async def check(pool: Pool, exported: Head | None = None) -> tuple[Walk, Head]:
    """Follow the whole chain, a page in memory at a time, and say where it is broken and where its head says that it ends.

    `exported` is a head that was kept elsewhere; see deedbox.model.chain.Walk.
    """
    async with autocommit(pool) as connection:
        end = await read_end(connection)
    walk = Walk(exported)
    async for stored in entries(pool, until=end.head.seq):
        if not walk.step(stored):
            break
    if end.newest > end.head.seq:
        walk.breaks(end.head.seq + 1, "it lies beyond the head, which was set back")
    walk.ends_at(end.head)
    return walk, end.head


async def verify(pool: Pool) -> int | None:
    """The number of the first entry that is missing or was changed, or None where the chain is whole up to its head."""
    return (await check(pool))[0].first_broken
