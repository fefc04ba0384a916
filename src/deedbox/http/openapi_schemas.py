"""The schemas of answers that no action has of its own, for the OpenAPI document."""

from typing import Any

from deedbox.model.errors import CODES

_TEXT = {"type": "string"}
SCHEMAS: dict[str, Any] = {
    "Accepted": {
        "type": "object",
        "required": ["job_id", "status", "status_url", "events_url"],
        "properties": {
            "job_id": {"type": "string", "format": "uuid"},
            "status": _TEXT,
            "status_url": {"type": "string", "format": "uri"},
            "events_url": {"type": "string", "format": "uri"},
            "status_token": {"type": "string", "description": "For form keys: shows this job for a week, in a header."},
        },
    },
    "Job": {
        "type": "object",
        "required": ["job_id", "action", "state", "round", "attempts", "max_attempts", "created_at", "updated_at"],
        "properties": {
            "job_id": {"type": "string", "format": "uuid"},
            "action": _TEXT,
            "state": _TEXT,
            "round": {"type": "integer"},
            "attempts": {"type": "integer"},
            "max_attempts": {"type": "integer"},
            "progress": {"type": ["object", "null"]},
            "partial": {"type": ["object", "null"]},
            "last_error": {"type": ["object", "null"]},
            "failure": {"type": ["object", "null"]},
            "needs_attention": {"type": "boolean"},
            "models": {"type": ["object", "null"]},
            "approvals": {"type": "array", "items": {"type": "object"}},
            "effects": {"type": "array", "items": {"type": "object"}},
            "documents": {"type": "array", "items": {"type": "object"}},
            "created_at": {"type": "string", "format": "date-time"},
            "updated_at": {"type": "string", "format": "date-time"},
            "next_attempt_at": {"type": ["string", "null"], "format": "date-time"},
        },
    },
    "Problem": {
        "type": "object",
        "required": ["type", "title", "status", "detail", "code", "retryable", "errors"],
        "properties": {
            "type": _TEXT,
            "title": _TEXT,
            "status": {"type": "integer"},
            "detail": _TEXT,
            "code": {"type": "string", "enum": sorted(CODES)},
            "retryable": {"type": "boolean"},
            "errors": {
                "type": "array",
                "items": {"type": "object", "properties": {"pointer": _TEXT, "rule": _TEXT, "message": _TEXT}},
            },
        },
    },
}
