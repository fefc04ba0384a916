"""A receiver of callbacks as it should be: checks the signature over the raw bytes, and does each id once."""

import asyncio
import json
from dataclasses import dataclass, field
from typing import Any

from deedbox.connectors.signing import BadSignatureError, verify
from deedbox.testing.http_provider import HttpProvider, Request


@dataclass(slots=True)
class CallbackReceiver(HttpProvider):
    """Takes callbacks signed with one of `secrets`; `events` are those it had not seen before, in the order they came.

    Its `refusal` is 410: it wants to hear no more. What is not signed is answered 401 and kept in `unsigned`.
    """

    key_header: str = "webhook-id"
    refusal: int = 410
    secrets: tuple[str, ...] = ()
    unsigned: list[Request] = field(default_factory=list[Request])

    @property
    def events(self) -> list[dict[str, Any]]:
        """What it was told."""
        return [note["body"] for note in self.performed]

    async def _answer(self, request: Request, writer: asyncio.StreamWriter) -> bool:
        try:
            verify(self.secrets, request.headers, request.body)
            json.loads(request.body)
        except (BadSignatureError, ValueError):
            self.unsigned.append(request)
            return await self._say(writer, 401, {"error": "not signed"})
        # Named by its class: a dataclass with slots is made anew, and `super()` would still mean the old one.
        return await HttpProvider._answer(self, request, writer)  # noqa: SLF001 -- its own, by another way
