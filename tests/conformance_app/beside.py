"""What the suite asks for and the face does not serve: prompts, completion, levels of logs, and resources of its own."""

import json
import re
from typing import Any, cast

from mcp.server.caching import CacheHint
from mcp.shared.exceptions import MCPError
from mcp_types import (
    INVALID_PARAMS,
    CompleteRequestParams,
    CompleteResult,
    EmptyResult,
    GetPromptRequestParams,
    GetPromptResult,
    ListPromptsResult,
    ListResourcesResult,
    PaginatedRequestParams,
    ReadResourceRequestParams,
    ReadResourceResult,
    RequestParams,
)

from deedbox.mcp import McpFace
from deedbox.mcp.context import Ctx, Result
from tests.conformance_app.fixtures import PIXEL, answered, elicit, required, text

_TEMPLATE = re.compile(r"test://template/([^/]+)/data")
_CONTEXT = {"type": "object", "properties": {"context": {"type": "string"}}, "required": ["context"]}
_PROMPTS: dict[str, list[str]] = {
    "test_simple_prompt": [],
    "test_prompt_with_arguments": ["arg1", "arg2"],
    "test_prompt_with_embedded_resource": ["resourceUri"],
    "test_prompt_with_image": [],
    "test_input_required_result_prompt": [],
}


async def prompts(_ctx: Ctx, _params: PaginatedRequestParams) -> ListPromptsResult:
    listed = [
        {
            "name": name,
            "description": f"A fixture: {name}.",
            "arguments": [{"name": one, "description": one, "required": True} for one in arguments],
        }
        for name, arguments in _PROMPTS.items()
    ]
    return ListPromptsResult.model_validate({"prompts": listed})


async def prompt(ctx: Ctx, params: GetPromptRequestParams) -> Result:
    given = params.arguments or {}
    if params.name == "test_input_required_result_prompt":
        content = answered(ctx, "user_context")
        if content is None:
            return required({"user_context": elicit("What context should the prompt use?", _CONTEXT)})
        return _said(text(f"Use the context {content.get('context')}."))
    match params.name:
        case "test_simple_prompt":
            return _said(text("This is a simple prompt for testing."))
        case "test_prompt_with_arguments":
            return _said(text(f"Prompt with arguments: arg1='{given.get('arg1')}', arg2='{given.get('arg2')}'"))
        case "test_prompt_with_embedded_resource":
            held = {"uri": given.get("resourceUri"), "mimeType": "text/plain", "text": "Embedded resource content for testing."}
            return _said({"type": "resource", "resource": held}, text("Please process the embedded resource above."))
        case "test_prompt_with_image":
            shown = {"type": "image", "data": PIXEL, "mimeType": "image/png"}
            return _said(shown, text("Please analyze the image above."))
        case _:
            raise MCPError(INVALID_PARAMS, "There is no such prompt.")


def _said(*content: dict[str, Any]) -> GetPromptResult:
    return GetPromptResult.model_validate({"messages": [{"role": "user", "content": one} for one in content]})


async def complete(_ctx: Ctx, _params: CompleteRequestParams) -> CompleteResult:
    return CompleteResult.model_validate({"completion": {"values": ["paris", "park", "party"], "total": 3, "hasMore": False}})


async def nothing(_ctx: Ctx, _params: RequestParams) -> EmptyResult:
    return EmptyResult()


async def resources(_ctx: Ctx, _params: PaginatedRequestParams) -> ListResourcesResult:
    listed = [
        {"uri": "test://static-text", "name": "static text", "description": "A text.", "mimeType": "text/plain"},
        {"uri": "test://static-binary", "name": "static binary", "description": "A picture.", "mimeType": "image/png"},
        {"uri": "test://watched-resource", "name": "watched", "description": "One to watch.", "mimeType": "text/plain"},
    ]
    return ListResourcesResult.model_validate({"resources": listed})


def put_beside(face: McpFace) -> None:
    """Give the face's server the suite's handlers; what is not a fixture is still ours."""
    server = face.server
    ours = server.get_request_handler("resources/read")
    assert ours is not None

    async def read(ctx: Ctx, params: ReadResourceRequestParams) -> Result:
        match = _TEMPLATE.fullmatch(params.uri)
        held: dict[str, Any]
        if params.uri == "test://static-text":
            held = {"mimeType": "text/plain", "text": "This is the content of the static text resource."}
        elif params.uri == "test://static-binary":
            held = {"mimeType": "image/png", "blob": PIXEL}
        elif match is not None:
            data = {"id": match[1], "templateTest": True, "data": f"Data for ID: {match[1]}"}
            held = {"mimeType": "application/json", "text": json.dumps(data, separators=(",", ":"))}
        else:
            return cast("Result", await ours.handler(ctx, params))
        return ReadResourceResult.model_validate({"contents": [{"uri": params.uri, **held}]})

    server.add_request_handler("prompts/list", PaginatedRequestParams, prompts)
    server.add_request_handler("prompts/get", GetPromptRequestParams, prompt)
    server.add_request_handler("completion/complete", CompleteRequestParams, complete)
    server.add_request_handler("resources/list", PaginatedRequestParams, resources)
    server.add_request_handler("resources/read", ReadResourceRequestParams, read)
    for method in ("logging/setLevel", "resources/subscribe", "resources/unsubscribe"):
        server.add_request_handler(method, RequestParams, nothing)
    server.cache_hints["prompts/list"] = CacheHint(0, "private")
