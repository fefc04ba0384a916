"""The suite's fixtures that answer at once: tools of every kind of content, and questions to the client in both eras."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from mcp.shared.exceptions import MCPError
from mcp_types import MISSING_REQUIRED_CLIENT_CAPABILITY, CallToolRequestParams, CallToolResult, Tool

from deedbox.mcp.context import Ctx, Result, exchange_of, principal_of, require_tasks
from deedbox.mcp.deps import Addition, McpDeps
from deedbox.mcp.results import job_id_of
from deedbox.mcp.tasks import Tasks
from deedbox.mcp.wire import object_of
from deedbox.operate.tools import ToolCall

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
SOUND = "UklGRiQAAABXQVZFZm10IBAAAAABAAEAQB8AAEAfAAABAAgAZGF0YQAAAAA="
TEXT = {"type": "text"}
Body = Callable[[Ctx, Mapping[str, Any]], Awaitable[Result]]
_NAME = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}


def complete(*content: dict[str, Any], error: bool = False) -> CallToolResult:
    """A result with this content."""
    return CallToolResult.model_validate({"content": list(content), "isError": error})


def text(said: str) -> dict[str, Any]:
    """A text as content."""
    return {"type": "text", "text": said}


def elicit(message: str, schema: Mapping[str, Any]) -> dict[str, Any]:
    """A question by form."""
    return {"method": "elicitation/create", "params": {"mode": "form", "message": message, "requestedSchema": dict(schema)}}


def sample(prompt: str, most: int) -> dict[str, Any]:
    """A question to the client's model."""
    messages = [{"role": "user", "content": text(prompt)}]
    return {"method": "sampling/createMessage", "params": {"messages": messages, "maxTokens": most}}


ROOTS: dict[str, Any] = {"method": "roots/list", "params": {}}


def required(requests: Mapping[str, Any], state: str | None = None) -> dict[str, Any]:
    """A result that asks first."""
    result: dict[str, Any] = {"resultType": "input_required", "inputRequests": dict(requests)}
    return result if state is None else {**result, "requestState": state}


def responses(ctx: Ctx) -> Mapping[str, Any]:
    """What the client answered."""
    return object_of((ctx.params or {}).get("inputResponses"))


def answered(ctx: Ctx, key: str) -> dict[str, Any] | None:
    """The content of an answer that was given and is whole."""
    found = object_of(responses(ctx).get(key))
    if not found or found.get("action") not in {None, "accept"}:
        return None
    return object_of(found.get("content", found)) or None


async def ask(ctx: Ctx, request: Mapping[str, Any]) -> dict[str, Any]:
    """Ask on the call's own stream, in the older era."""
    return await exchange_of(ctx).send_raw_request(request["method"], request["params"])


# Content -----------------------------------------------------------------------------------------------------------------


async def greet(_ctx: Ctx, given: Mapping[str, Any]) -> Result:
    return complete(text(f"Hello, {given.get('name', 'you')}!"))


async def simple(_ctx: Ctx, _given: Mapping[str, Any]) -> Result:
    return complete(text("This is a simple text response for testing."))


async def image(_ctx: Ctx, _given: Mapping[str, Any]) -> Result:
    return complete({"type": "image", "data": PIXEL, "mimeType": "image/png"})


async def audio(_ctx: Ctx, _given: Mapping[str, Any]) -> Result:
    return complete({"type": "audio", "data": SOUND, "mimeType": "audio/wav"})


async def embedded(_ctx: Ctx, _given: Mapping[str, Any]) -> Result:
    resource = {"uri": "test://embedded-resource", "mimeType": "text/plain", "text": "This is an embedded resource content."}
    return complete({"type": "resource", "resource": resource})


async def mixed(_ctx: Ctx, _given: Mapping[str, Any]) -> Result:
    said = json.dumps({"test": "data", "value": 123}, separators=(",", ":"))
    resource = {"uri": "test://mixed-content-resource", "mimeType": "application/json", "text": said}
    return complete(
        text("Multiple content types test:"),
        {"type": "image", "data": PIXEL, "mimeType": "image/png"},
        {"type": "resource", "resource": resource},
    )


async def failing(_ctx: Ctx, _given: Mapping[str, Any]) -> Result:
    return complete(text("This tool intentionally returns an error for testing"), error=True)


async def logging(ctx: Ctx, _given: Mapping[str, Any]) -> Result:
    for said in ("Tool execution started", "Tool processing data", "Tool execution completed"):
        await ctx.session.send_log_message("info", said, related_request_id=ctx.request_id)  # pyright: ignore[reportDeprecated]
        await asyncio.sleep(0.05)
    return complete(text("Logged three times."))


async def progress(ctx: Ctx, _given: Mapping[str, Any]) -> Result:
    for done in (0, 50, 100):
        await exchange_of(ctx).progress(done, 100)
        await asyncio.sleep(0.05)
    return complete(text("Went from 0 to 100."))


async def needs_sampling(ctx: Ctx, _given: Mapping[str, Any]) -> Result:
    known = ctx.session.client_capabilities
    if known is None or known.sampling is None:
        missing: dict[str, Any] = {"requiredCapabilities": {"sampling": {}}}
        raise MCPError(MISSING_REQUIRED_CLIENT_CAPABILITY, "This needs a client that samples.", missing)
    return complete(text("It may sample."))


# Questions in the older era ------------------------------------------------------------------------------------------------


async def sampling(ctx: Ctx, given: Mapping[str, Any]) -> Result:
    answer = await ask(ctx, sample(str(given.get("prompt")), 100))
    return complete(text(f"LLM response: {answer['content']['text']}"))


async def elicitation(ctx: Ctx, given: Mapping[str, Any]) -> Result:
    schema = {
        "type": "object",
        "properties": {
            "username": {"type": "string", "description": "User's response"},
            "email": {"type": "string", "description": "User's email address"},
        },
        "required": ["username", "email"],
    }
    answer = await ask(ctx, elicit(str(given.get("message")), schema))
    return complete(text(f"User response: action={answer['action']}, content={json.dumps(answer.get('content'))}"))


async def defaults(ctx: Ctx, _given: Mapping[str, Any]) -> Result:
    schema: dict[str, Any] = {
        "type": "object",
        "properties": {
            "name": {"type": "string", "default": "John Doe"},
            "age": {"type": "integer", "default": 30},
            "score": {"type": "number", "default": 95.5},
            "status": {"type": "string", "enum": ["active", "inactive", "pending"], "default": "active"},
            "verified": {"type": "boolean", "default": True},
        },
        "required": [],
    }
    answer = await ask(ctx, elicit("Please check these values.", schema))
    return complete(text(f"Elicitation completed: action={answer['action']}, content={json.dumps(answer.get('content'))}"))


async def enums(ctx: Ctx, _given: Mapping[str, Any]) -> Result:
    plain = ["option1", "option2", "option3"]
    titled = [{"const": f"value{n}", "title": f"{word} Option"} for n, word in enumerate(("First", "Second", "Third"), 1)]
    choices = [{"const": f"value{n}", "title": f"{word} Choice"} for n, word in enumerate(("First", "Second", "Third"), 1)]
    schema: dict[str, Any] = {
        "type": "object",
        "properties": {
            "untitledSingle": {"type": "string", "enum": plain},
            "titledSingle": {"type": "string", "oneOf": titled},
            "legacyEnum": {
                "type": "string",
                "enum": ["opt1", "opt2", "opt3"],
                "enumNames": ["Option One", "Option Two", "Option Three"],
            },
            "untitledMulti": {"type": "array", "items": {"type": "string", "enum": plain}},
            "titledMulti": {"type": "array", "items": {"anyOf": choices}},
        },
        "required": [],
    }
    answer = await ask(ctx, elicit("Please choose.", schema))
    return complete(text(f"Elicitation completed: action={answer['action']}, content={json.dumps(answer.get('content'))}"))


# Questions in the newer era ------------------------------------------------------------------------------------------------


async def mrtr_elicitation(ctx: Ctx, _given: Mapping[str, Any]) -> Result:
    content = answered(ctx, "user_name")
    if content is None or not isinstance(content.get("name"), str):
        return required({"user_name": elicit("What is your name?", _NAME)})
    return complete(text(f"Hello, {content['name']}!"))


async def mrtr_sampling(ctx: Ctx, _given: Mapping[str, Any]) -> Result:
    found = object_of(responses(ctx).get("capital_question"))
    if not found:
        return required({"capital_question": sample("What is the capital of France?", 100)})
    return complete(text(str(found["content"]["text"])))


async def mrtr_roots(ctx: Ctx, _given: Mapping[str, Any]) -> Result:
    found = object_of(responses(ctx).get("client_roots"))
    if not found:
        return required({"client_roots": ROOTS})
    return complete(text(" ".join(root["uri"] for root in found["roots"])))


async def mrtr_state(ctx: Ctx, _given: Mapping[str, Any]) -> Result:
    state = (ctx.params or {}).get("requestState")
    schema = {"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"]}
    if state is None or answered(ctx, "confirm") is None:
        return required({"confirm": elicit("Please confirm", schema)}, "the state")
    return complete(text("state-ok" if state == "the state" else "state-wrong"))


async def mrtr_multiple(ctx: Ctx, _given: Mapping[str, Any]) -> Result:
    wanted: dict[str, Any] = {
        "user_name": elicit("What is your name?", _NAME),
        "greeting": sample("Generate a greeting", 50),
        "client_roots": ROOTS,
    }
    missing: dict[str, Any] = {key: wanted[key] for key in wanted if key not in responses(ctx)}
    return required(missing, "several") if missing else complete(text("All three were answered."))


async def mrtr_rounds(ctx: Ctx, _given: Mapping[str, Any]) -> Result:
    state = (ctx.params or {}).get("requestState")
    if state is None:
        return required({"step1": elicit("Step 1: What is your name?", _NAME)}, json.dumps({"step": 1}))
    known: dict[str, Any] = json.loads(state)
    if known["step"] == 1:
        name = (answered(ctx, "step1") or {}).get("name")
        schema = {"type": "object", "properties": {"color": {"type": "string"}}, "required": ["color"]}
        request = elicit("Step 2: What is your favorite color?", schema)
        return required({"step2": request}, json.dumps({"step": 2, "name": name}))
    color = (answered(ctx, "step2") or {}).get("color")
    return complete(text(f"{known['name']} likes {color}."))


async def mrtr_tampered(ctx: Ctx, _given: Mapping[str, Any]) -> Result:
    if (ctx.params or {}).get("requestState") is None:
        return required({"confirm": elicit("Please confirm", _NAME)}, "sealed")
    return complete(text("The state came back whole."))


async def mrtr_capabilities(ctx: Ctx, _given: Mapping[str, Any]) -> Result:
    known = ctx.session.client_capabilities
    if responses(ctx):
        return complete(text("Answered."))
    wanted: dict[str, Any] = {}
    if known is not None and known.elicitation is not None:
        wanted["user_name"] = elicit("What is your name?", _NAME)
    if known is not None and known.sampling is not None:
        wanted["greeting"] = sample("Generate a greeting", 50)
    if known is not None and known.roots is not None:
        wanted["client_roots"] = ROOTS
    return required(wanted, "capabilities") if wanted else complete(text("Nobody can be asked."))


# With jobs -----------------------------------------------------------------------------------------------------------------


def with_jobs(deps: McpDeps) -> dict[str, Body]:
    """The fixtures that start jobs of their own, by the names that the suite wants."""
    tasks = Tasks(deps)

    async def start(ctx: Ctx, action: str, arguments: Mapping[str, Any]) -> Result:
        call = ToolCall(action, dict(arguments), source="mcp", wait_s=0)
        envelope = await deps.tools.call(principal_of(ctx), call)
        assert envelope.job_id is not None, envelope
        return await tasks.created(ctx, job_id_of(envelope.job_id))

    async def failing_job(ctx: Ctx, _given: Mapping[str, Any]) -> Result:
        require_tasks(ctx)
        return await start(ctx, "fail_always", {})

    async def with_task(ctx: Ctx, _given: Mapping[str, Any]) -> Result:
        require_tasks(ctx)
        content = answered(ctx, "user_name")
        if content is None:
            return required({"user_name": elicit("What is your name?", _NAME)}, "asked")
        return await start(ctx, "finish_task", {"user_name": content.get("name")})

    return {"failing_job": failing_job, "test_tool_with_task": with_task}


PLAIN: dict[str, Body] = {
    "greet": greet,
    "test_simple_text": simple,
    "test_header": simple,
    "json_schema_2020_12_tool": simple,
    "test_image_content": image,
    "test_audio_content": audio,
    "test_embedded_resource": embedded,
    "test_multiple_content_types": mixed,
    "test_error_handling": failing,
    "test_tool_with_logging": logging,
    "test_logging_tool": logging,
    "test_tool_with_progress": progress,
    "test_missing_capability": needs_sampling,
    "test_sampling": sampling,
    "test_elicitation": elicitation,
    "test_elicitation_sep1034_defaults": defaults,
    "test_elicitation_sep1330_enums": enums,
    "test_streaming_elicitation": mrtr_elicitation,
    "test_input_required_result_elicitation": mrtr_elicitation,
    "test_input_required_result_sampling": mrtr_sampling,
    "test_input_required_result_list_roots": mrtr_roots,
    "test_input_required_result_request_state": mrtr_state,
    "test_input_required_result_multiple_inputs": mrtr_multiple,
    "test_input_required_result_multi_round": mrtr_rounds,
    "test_input_required_result_tampered_state": mrtr_tampered,
    "test_input_required_result_capabilities": mrtr_capabilities,
}
SCHEMAS: dict[str, dict[str, Any]] = {
    "greet": _NAME,
    "test_sampling": {"type": "object", "properties": {"prompt": {"type": "string"}}, "required": ["prompt"]},
    "test_header": {
        "type": "object",
        "properties": {"region": {"type": "string", "x-mcp-header": "Region"}},
        "required": ["region"],
    },
    "json_schema_2020_12_tool": {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "$defs": {
            "address": {
                "$anchor": "addressDef",
                "type": "object",
                "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
            }
        },
        "properties": {
            "name": {"type": "string"},
            "address": {"$ref": "#/$defs/address"},
            "contactMethod": {"type": "string", "enum": ["phone", "email"]},
            "phone": {"type": "string"},
            "email": {"type": "string"},
        },
        "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
        "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
        "then": {"required": ["phone"]},
        "else": {"required": ["email"]},
        "additionalProperties": False,
    },
    "test_elicitation": {"type": "object", "properties": {"message": {"type": "string"}}, "required": ["message"]},
}


def additions(bodies: Mapping[str, Body]) -> tuple[Addition, ...]:
    """Bodies as tools of the face."""
    return tuple(_addition(name, body) for name, body in bodies.items())


def _addition(name: str, body: Body) -> Addition:
    async def call(ctx: Ctx, params: CallToolRequestParams) -> Result:
        return await body(ctx, params.arguments or {})

    schema = SCHEMAS.get(name, {"type": "object", "properties": {}})
    return Addition(Tool(name=name, description=f"A fixture: {name}.", input_schema=schema), call)
