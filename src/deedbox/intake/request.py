"""A call as a face hands it over, and its answer."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NamedTuple
from uuid import UUID

from deedbox.intake.documents import Parsed
from deedbox.model.identity import Principal
from deedbox.store.audit import AuditEntry


@dataclass(frozen=True, slots=True)
class Upload:
    """One uploaded file as it arrived."""

    name: str
    media_type: str
    content: bytes


class Request(NamedTuple):
    """A call to run an action, as a face hands it over. `body` has passed `parse_json`; uploads go by input field."""

    principal: Principal
    action: str
    body: Any
    key: str | None
    source: str
    uploads: Mapping[str, Sequence[Upload]] = MappingProxyType({})
    caller_run: str | None = None
    trace: str | None = None
    form_key: str | None = None
    """The key from a form's own field, where the action's input has none of that name."""
    priority: int | None = None
    """0 to 1000, the lowest first; the action's own where none is given."""
    run_at: str | None = None
    """RFC 3339: not before this moment."""
    deadline: str | None = None
    """RFC 3339: canceled where it has not ended by then."""
    replaces: UUID | None = None
    """The job that this one corrects."""
    parent: UUID | None = None
    """The job whose effect submits this one."""
    callback: str | None = None
    """The registered receiver that is told what becomes of it; the action's own where none is given."""
    parsed: Parsed | None = None
    """What `body` was read from, where whoever read it has that already."""
    otherwise: str | None = None
    """The key where neither the call nor the action's own source of keys has one; instead of the action's rule."""
    closed: bool = False
    """Members of the input that its schema does not name are refused, whatever the schema says of them."""
    call_id: UUID | None = None
    """Whoever hands it over journals the call under this id, with more than intake knows; else intake journals it."""
    entry: AuditEntry | None = None
    """Kept in the audit in the transaction that stores the job, with the job's id as `job` in its detail."""


class Accepted(NamedTuple):
    """The job of a call: new, or the one that an earlier delivery of its key made."""

    job_id: UUID
    state: str
    replayed: bool
    taken_up: bool = False
    """The delivery of its key has begun a new round of a parked job."""
    key_sha256: bytes | None = None
    """The digest of its key, where this call has made it."""
