"""The routes of tools in the OpenAPI document: the list, and one path per action that is offered."""

from collections.abc import Iterable
from typing import Any

from deedbox.extend.action import Action
from deedbox.extend.contract import input_schema
from deedbox.operate.tools import ENVELOPE_SCHEMA

ENVELOPE = "Envelope"


def tool_schemas() -> dict[str, Any]:
    """The schemas that the paths refer to."""
    return {ENVELOPE: dict(ENVELOPE_SCHEMA)}


def tool_paths(actions: Iterable[Action], problems: dict[str, Any]) -> dict[str, Any]:
    """The paths; `problems` are the answers to whoever is not known, and to a route that is not there."""
    listed = {
        "operationId": "list_tools",
        "summary": "What the caller may call as tools.",
        "responses": {"200": _answer("The tools, and the schema of every answer.", {"type": "object"}), **problems},
    }
    paths: dict[str, Any] = {"/api/tools": {"get": listed}}
    for action in actions:
        if action.offer.withheld is None:
            paths[f"/api/tools/{action.name}"] = {"post": _call(action, problems)}
    return paths


def _call(action: Action, problems: dict[str, Any]) -> dict[str, Any]:
    schema = input_schema(action.input_model)
    return {
        "operationId": f"call_{action.name}",
        "summary": f"{action.title.rstrip('.')}, as a tool.",
        "description": f"Version {action.version}. Every outcome is answered with 200 in one shape.",
        "parameters": [
            _parameter("wait_s", "query", "How long to wait for the end, in seconds; 5 where it is not given.", most=25),
            _parameter("Idempotency-Key", "header", "Equal calls without one are one for a minute."),
            _parameter("Deedbox-Parent-Job", "header", "The job within which it is called."),
            _parameter("Deedbox-Tool-Version", "header", "The version that the caller was shown.", most=1_000_000),
            _parameter("Deedbox-Caller-Run", "header", "The caller's own run id."),
            _parameter("Deedbox-Source", "header", "`n8n` where it calls."),
            _parameter("traceparent", "header", "W3C Trace Context."),
        ],
        "requestBody": {"required": True, "content": {"application/json": {"schema": _inlined(schema, action.name)}}},
        "responses": {
            "200": _answer("What came of it.", {"$ref": f"#/components/schemas/{ENVELOPE}"}),
            **problems,
        },
    }


def _inlined(schema: dict[str, Any], name: str) -> dict[str, Any]:
    """The schema as a document of its own, so that what it refers to is found within it."""
    return {**schema, "$id": f"urn:deedbox:tool:{name}"} if "$defs" in schema else schema


def _parameter(name: str, where: str, description: str, *, most: int | None = None) -> dict[str, Any]:
    kind: dict[str, Any] = {"type": "string", "maxLength": 255} if most is None else {"type": "number", "maximum": most}
    return {"name": name, "in": where, "required": False, "description": description, "schema": kind}


def _answer(description: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"description": description, "content": {"application/json": {"schema": schema}}}
