"""Whether a request of the newer era says in its headers what it says in its body, which is what balancers route by."""

from collections.abc import Mapping
from typing import Any

from mcp.shared.inbound import (
    MCP_NAME_HEADER,
    InboundLadderRejection,
    InboundModernRoute,
    classify_inbound_request,
    decode_header_value,
    find_duplicated_routing_header,
    validate_mcp_param_headers,
    x_mcp_header_map,
)
from mcp_types import HEADER_MISMATCH
from starlette.datastructures import Headers
from starlette.requests import Request

from deedbox.mcp.context import PRINCIPAL
from deedbox.mcp.deps import McpDeps
from deedbox.mcp.wire import Incoming, object_of


def classified(request: Request, incoming: Incoming) -> InboundModernRoute | InboundLadderRejection:
    """The envelope of a request whose headers and body agree, or the refusal."""
    duplicated = find_duplicated_routing_header(request.headers.items())
    if duplicated is not None:
        return InboundLadderRejection(HEADER_MISMATCH, f"{duplicated} header appears more than once")
    headers = _trimmed(request.headers)
    verdict = classify_inbound_request(incoming.body, headers=headers)
    named = headers.get(MCP_NAME_HEADER)
    if isinstance(verdict, InboundLadderRejection) or not incoming.method.startswith("tasks/") or named is None:
        # Clients of the extension's first days leave the name of a task out.
        return verdict
    if decode_header_value(named) != (incoming.params or {}).get("taskId"):
        return InboundLadderRejection(HEADER_MISMATCH, "The Mcp-Name header is not the task's id")
    return verdict


class Mirrored:
    """Arguments that a schema wants in a header as well (`x-mcp-header`)."""

    def __init__(self, deps: McpDeps) -> None:
        """Schemas are those of the tools that a caller is shown."""
        self._deps = deps
        self._schemas: dict[str, Mapping[str, Any] | None] = {
            one.tool.name: _mirroring(one.tool.input_schema) for one in deps.additions
        }

    def refusal(self, request: Request, incoming: Incoming) -> InboundLadderRejection | None:
        """The refusal of a call whose headers do not say what its arguments say."""
        params = incoming.params or {}
        if incoming.method != "tools/call":
            return None
        schema = self._schema(request, str(params.get("name")))
        return (
            None if schema is None else validate_mcp_param_headers(schema, object_of(params.get("arguments")), request.headers)
        )

    def _schema(self, request: Request, name: str) -> Mapping[str, Any] | None:
        if name not in self._schemas:
            listed = {tool.name: tool.input_schema for tool in self._deps.tools.listed(request.scope[PRINCIPAL])}
            if name not in listed:
                return None
            self._schemas[name] = _mirroring(listed[name])
        return self._schemas[name]


def _mirroring(schema: Mapping[str, Any]) -> Mapping[str, Any] | None:
    return schema if x_mcp_header_map(schema) else None


def _trimmed(headers: Headers) -> dict[str, str]:
    return {name: value.strip(" \t") for name, value in headers.items()}
