"""The audit as people ask for it: what is in it, is the chain whole, and a copy of it to keep elsewhere.

The chain spans all tenants; what it says is for those who administer the tenant of an entry. Whoever exports it gets the
entries of others as bare links, so that the chain can be followed over them.
"""

import csv
import io
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from deedbox.model.chain import FIELDS, Head, Stored, Walk, last_line, walk_lines
from deedbox.model.errors import DeedboxError
from deedbox.model.identity import Principal
from deedbox.store import audit
from deedbox.store.pool import Pool
from deedbox.store.transaction import autocommit

__all__ = [
    "AuditPage",
    "ChainCheck",
    "Format",
    "Head",
    "check",
    "check_file",
    "export",
    "head",
    "listed",
    "read_head",
    "verify",
]

Format = Literal["ndjson", "csv"]
MOST = 500
_COLUMNS = ("seq", "at", *FIELDS, "detail", "detail_sha256", "prev_sha256", "entry_sha256")
# What a spreadsheet takes for a formula when a cell begins with it; what is in the audit was partly typed by strangers.
_FORMULAS = ("=", "+", "-", "@", "\t", "\r", "\n")


@dataclass(frozen=True, slots=True)
class ChainCheck:
    """How many entries the chain has, the hash of its head to compare with one exported earlier, and its first broken link.

    `why` says what is wrong with that link. `erased` entries have no detail any more, which does not break the chain;
    `withheld` ones, in the export of another tenant's administrator, were followed by their links alone.
    """

    entries: int
    head_sha256: str
    first_broken: int | None
    why: str | None = None
    erased: int = 0
    withheld: int = 0

    @property
    def whole(self) -> bool:
        """Whether no entry up to the head is missing or was changed."""
        return self.first_broken is None


@dataclass(frozen=True, slots=True)
class AuditPage:
    """Entries by the names of their parts, newest first; `before` asks for the next page and is None at the end."""

    entries: tuple[dict[str, Any], ...]
    before: int | None


async def verify(pool: Pool) -> int | None:
    """The number of the first entry that is missing or was changed; None where the chain is whole up to its head."""
    return await audit.verify(pool)


async def check(pool: Pool, exported: Head | None = None) -> ChainCheck:
    """Verify the chain and say where it ends; with the head of an earlier export, also that it was not cut off since."""
    walk, end = await audit.check(pool, exported)
    return _said(walk, end.seq, end.entry_sha256)


def check_file(lines: Iterable[str], exported: Head | None = None) -> ChainCheck:
    """Verify the lines of an export by themselves; with another head, also that it is the one of that entry.

    Raises DeedboxError invalid_input for a line that is none of an export.
    """
    try:
        walk = walk_lines(lines, exported)
    except ValueError as error:
        raise DeedboxError("invalid_input", f"This is not an export of the audit: {error}.") from error
    return _said(walk, walk.entries, walk.entry_sha256)


def _said(walk: Walk, entries: int, head_sha256: bytes) -> ChainCheck:
    return ChainCheck(entries, head_sha256.hex(), walk.first_broken, walk.why, walk.erased, walk.withheld)


def read_head(text: str) -> Head:
    """A head as `NUMBER:HASH` or as the last line of an export. Raises DeedboxError invalid_parameter."""
    try:
        return Head.read(text)
    except (ValueError, AttributeError) as error:
        raise DeedboxError("invalid_parameter", "A head is NUMBER:HASH, or the last line of an export.") from error


async def head(pool: Pool) -> Head:
    """Where the chain ends now: kept elsewhere, it shows later that nothing before it was changed or cut off."""
    async with autocommit(pool) as connection:
        return (await audit.read_end(connection)).head


async def listed(
    pool: Pool,
    principal: Principal,
    *,
    actor: str | None = None,
    verb: str | None = None,
    subject: str | None = None,
    since: datetime | None = None,
    until: datetime | None = None,
    before: int | None = None,
    limit: int = 100,
) -> AuditPage:
    """A page of the entries of the principal's tenant, newest first. Raises DeedboxError permission_denied."""
    _administers(principal, "Reading the audit")
    limit = min(max(limit, 1), MOST)
    async with autocommit(pool) as connection:
        found = await audit.listed(
            connection,
            principal.tenant,
            actor=actor,
            verb=verb,
            subject=subject,
            since=since,
            until=until,
            before=before,
            limit=limit + 1,
        )
    page = found[:limit]
    return AuditPage(tuple(entry.values() for entry in page), page[-1].seq if len(found) > limit else None)


async def export(
    pool: Pool,
    principal: Principal,
    *,
    since: datetime | None = None,
    until: datetime | None = None,
    form: Format = "ndjson",
) -> AsyncIterator[str]:
    """The entries of a time, all of them where none is named, as lines without line ends, read in pages.

    As JSON the last line is the head, and the lines can be verified by themselves (`check_file`). As CSV they are for reading:
    what a spreadsheet would take for a formula begins with an apostrophe. Entries of other tenants come as bare links in JSON
    and not at all in CSV, but for whoever sits at the machine, who can read the database anyway.
    Raises DeedboxError permission_denied.
    """
    _administers(principal, "Exporting the audit")
    async with autocommit(pool) as connection:
        end = (await audit.read_end(connection)).head
        first, last = (1, end.seq) if since is None and until is None else await audit.span(connection, since, until)
    if form == "csv":
        yield _cells(_COLUMNS)
    count = 0
    async for entry in audit.entries(pool, after=first - 1, until=last):
        count += 1
        readable = principal.method == "terminal" or entry.tenant == principal.tenant
        if form == "csv":
            if readable:
                yield _row(entry)
        else:
            yield entry.line() if readable else entry.link()
    if form == "ndjson":
        yield last_line(end, first=first, last=last, entries=count)


def _administers(principal: Principal, what: str) -> None:
    if not principal.may("administer"):
        raise DeedboxError("permission_denied", f"{what} needs a role that may administer.")


def _row(entry: Stored) -> str:
    return _cells([value for name, value in {**entry.values(), "detail": entry.detail_json}.items() if name in _COLUMNS])


def _cells(values: Iterable[object]) -> str:
    out = io.StringIO()
    csv.writer(out, lineterminator="").writerow(["" if value is None else _harmless(str(value)) for value in values])
    return out.getvalue()


def _harmless(text: str) -> str:
    return f"'{text}" if text.startswith(_FORMULAS) else text
