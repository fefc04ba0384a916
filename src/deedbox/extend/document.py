"""A stored upload as an action's input carries it."""

from typing import Any
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field, GetJsonSchemaHandler


class Document(BaseModel):
    """An uploaded file: stored by its SHA-256 before the call was answered, read with `ctx.document`.

    A caller that has no file to send names one by the `document_id` of an earlier job, and its schema for callers says so.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    document_id: UUID
    name: str = Field(max_length=255)
    media_type: str = Field(max_length=255)
    size: int = Field(gt=0)
    sha256: str = Field(max_length=64, pattern="^[0-9a-f]{64}$")
    url: str = Field(max_length=2048)

    @classmethod
    def __get_pydantic_json_schema__(cls, core_schema: Any, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        """For what comes in, the number alone; for what goes out, all of it."""
        whole = handler(core_schema)
        if handler.mode != "validation":
            return whole
        return {
            "type": "object",
            "title": "Document",
            "description": "A document that was uploaded before, by its number.",
            "properties": {"document_id": {"type": "string", "format": "uuid", "maxLength": 36}},
            "required": ["document_id"],
            "additionalProperties": False,
        }
