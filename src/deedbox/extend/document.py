"""A stored upload as an action's input carries it."""

from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field


class Document(BaseModel):
    """An uploaded file: stored by its SHA-256 before the call was answered, read with `ctx.document`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    document_id: UUID
    name: str = Field(max_length=255)
    media_type: str = Field(max_length=255)
    size: int = Field(gt=0)
    sha256: str = Field(max_length=64, pattern="^[0-9a-f]{64}$")
    url: str = Field(max_length=2048)
