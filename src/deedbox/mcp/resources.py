"""Resources: each job as `job://ID`, and the page that hosts show beside tools."""

import json
import re
from typing import Any
from uuid import UUID

from mcp.shared.exceptions import MCPError
from mcp_types import (
    INVALID_PARAMS,
    ListResourcesResult,
    ListResourceTemplatesResult,
    PaginatedRequestParams,
    ReadResourceRequestParams,
    ReadResourceResult,
    Resource,
    ResourceTemplate,
    TextResourceContents,
)

from deedbox.mcp.context import Ctx, note_job, principal_of
from deedbox.mcp.deps import McpDeps

VIEW_TYPE = "text/html;profile=mcp-app"
_JOB = re.compile(r"job://([0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12})")


def job_of(uri: str) -> UUID | None:
    """The job that a resource's address names, None where it names none."""
    match = _JOB.fullmatch(uri)
    return None if match is None else UUID(match[1])


class Resources:
    """The handlers of resources."""

    def __init__(self, deps: McpDeps) -> None:
        """The page comes from `deps.view`, where there is one."""
        self._deps = deps

    async def listed(self, ctx: Ctx, params: PaginatedRequestParams | None) -> ListResourcesResult:
        """The page. Jobs are not listed: whoever has one knows its id."""
        del ctx, params
        view = self._deps.view
        if view is None:
            return ListResourcesResult(resources=[])
        meta = {"ui": dict(view.meta)}
        page = Resource(uri=view.uri, name=view.name, title=view.title, mime_type=VIEW_TYPE, _meta=meta)
        return ListResourcesResult(resources=[page])

    async def templates(self, ctx: Ctx, params: PaginatedRequestParams | None) -> ListResourceTemplatesResult:
        """A job by its id."""
        del ctx, params
        template = ResourceTemplate(
            uri_template="job://{job_id}",
            name="job",
            title="A job as it stands",
            description="What get_job answers for the job, as JSON.",
            mime_type="application/json",
        )
        return ListResourceTemplatesResult(resource_templates=[template])

    async def read(self, ctx: Ctx, params: ReadResourceRequestParams) -> ReadResourceResult:
        """A job that the caller may see, or the page. Raises MCPError (-32602) for anything else, foreign jobs too."""
        view = self._deps.view
        if view is not None and params.uri == view.uri:
            contents = TextResourceContents(uri=view.uri, mime_type=VIEW_TYPE, text=view.html, _meta={"ui": dict(view.meta)})
            return ReadResourceResult(contents=[contents])
        job_id = job_of(params.uri)
        envelope = None if job_id is None else await self._deps.tools.job(principal_of(ctx), job_id)
        if envelope is None or envelope.error_code == "NOT_FOUND" or envelope.job_id is None:
            raise _unknown(params.uri)
        note_job(ctx, envelope.job_id)
        text = json.dumps(envelope.shown(), ensure_ascii=False, separators=(",", ":"))
        contents = TextResourceContents(uri=params.uri, mime_type="application/json", text=text)
        return ReadResourceResult(contents=[contents])


def _unknown(uri: str) -> MCPError:
    data: dict[str, Any] = {"uri": uri}
    return MCPError(INVALID_PARAMS, "There is no such resource, or it is not yours.", data)
