"""Documents that a call names instead of sending: uploads of earlier jobs, for callers that have no file to send.

An agent cannot upload: it names the document of a job that it may see, and the new job gets the same bytes under a number of
its own. The hash of the payload is that of an upload of these bytes, so that both ways to hand a document in are one request.
"""

from collections.abc import Mapping
from typing import Any, cast
from uuid import UUID

from deedbox.extend.action import Action
from deedbox.intake.request import Request, Upload
from deedbox.model.errors import DeedboxError, Problem
from deedbox.store import views
from deedbox.store.pool import Pool
from deedbox.store.transaction import autocommit

_FACTS = frozenset({"document_id", "name", "media_type", "size", "sha256", "url"})


async def with_documents(pool: Pool, action: Action, request: Request) -> Request:
    """The call with every document that it names read, as if it had been uploaded; the call itself where it names none.

    A document is named by an object with `document_id`; what else a job says of its document may stand beside it and is
    not believed. Raises DeedboxError invalid_input for one that does not exist, or whose job the caller may not see.
    """
    if not isinstance(request.body, Mapping):
        return request
    body = dict(cast("Mapping[str, Any]", request.body))
    found: dict[str, list[Upload]] = {}
    for name, several in action.document_fields.items():
        given = body.get(name)
        named = [_named(item) for item in (cast("list[Any]", given) if several and isinstance(given, list) else [given])]
        wanted = [number for number in named if number is not None]
        if not wanted or len(wanted) < len(named):
            continue
        del body[name]
        pointers = [f"/{name}/{place}" if several else f"/{name}" for place in range(len(wanted))]
        found[name] = [await _read(pool, request, *one) for one in zip(wanted, pointers, strict=True)]
    return request._replace(body=body, parsed=None, uploads={**found, **request.uploads}) if found else request


def not_a_document(name: str) -> DeedboxError:
    """What is refused where a document's field holds something else."""
    said = "a document is uploaded as a part of multipart/form-data, or named by the document_id of an earlier one"
    problem = Problem(f"/{name}", "upload", said)
    return DeedboxError("invalid_input", f"{name} must be an uploaded file, or name an earlier one.", problems=(problem,))


def _named(given: Any) -> str | None:
    """The number by which a document is named, as text; None for anything that names none."""
    if not isinstance(given, dict) or "document_id" not in given or not _FACTS.issuperset(cast("dict[str, Any]", given)):
        return None
    return str(cast("dict[str, Any]", given)["document_id"])


async def _read(pool: Pool, request: Request, number: str, pointer: str) -> Upload:
    try:
        document_id = UUID(number)
    except ValueError:
        raise _unknown(pointer) from None
    async with autocommit(pool) as connection:
        row = await views.document(connection, views.Reader.of(request.principal), document_id)
    if row is None:
        raise _unknown(pointer)
    return Upload(row[0], row[1], row[3])


def _unknown(pointer: str) -> DeedboxError:
    problem = Problem(f"{pointer}/document_id", "unknown_document", "there is no such document")
    return DeedboxError("invalid_input", "There is no such document.", problems=(problem,))
