"""Asking a caller something while its call is under way, where the answer may come in at any process.

The answer travels through the database as notifications and is kept nowhere: one that is lost is not waited for beyond the
time that the question has. Only who was asked can answer, and only who holds the question's id, which is random.
"""

import asyncio
import base64
import json
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol
from uuid import uuid4

from deedbox.model.errors import DeedboxError
from deedbox.model.identity import Principal
from deedbox.store import asked
from deedbox.store.pool import Pool
from deedbox.store.transaction import autocommit

_PIECE = 5400
"""Bytes in one notification, of which base64 makes a third more."""
MOST_PIECES = 64


class Hears(Protocol):
    """Passes on what processes say to one another; deedbox.store.wakeup does."""

    def replies(self, hear: "Hearer") -> AbstractAsyncContextManager[None]:
        """Call `hear` with every piece, as long as the context is open."""
        ...


class Hearer(Protocol):
    """Takes a piece of a reply."""

    def __call__(self, piece: str, /) -> None:
        """Must not raise or wait."""
        ...


class Question:
    """One question that is open: the id it goes out under, and the answer once it has come."""

    def __init__(self, principal: Principal) -> None:
        """Only `principal` can answer."""
        self.question_id = uuid4().hex
        self._principal_id = principal.principal_id
        self._pieces: dict[int, bytes] = {}
        self._answer: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()

    def hear(self, piece: str) -> None:
        """Take a piece; whatever is not of this question's answer is passed over."""
        question_id, _, rest = piece.partition(":")
        if question_id != self.question_id or self._answer.done():
            return
        principal_id, place, many, text = rest.split(":", 3)
        if principal_id != self._principal_id:
            return
        self._pieces[int(place)] = base64.b64decode(text)
        if len(self._pieces) == int(many):
            self._answer.set_result(json.loads(b"".join(self._pieces[number] for number in sorted(self._pieces))))

    async def answer(self, within_s: float) -> dict[str, Any]:
        """What was answered. Raises TimeoutError."""
        async with asyncio.timeout(within_s):
            return await asyncio.shield(self._answer)


class Replies:
    """Hands answers on to whichever process asked."""

    def __init__(self, pool: Pool) -> None:
        """The connections of `pool` carry the notifications."""
        self._pool = pool

    async def give(self, principal: Principal, question_id: str, answer: Mapping[str, Any]) -> None:
        """Hand an answer on; nobody may wait for it any more. Raises DeedboxError body_too_large for one that is very long."""
        raw = json.dumps(answer, separators=(",", ":")).encode()
        chunks = [raw[start : start + _PIECE] for start in range(0, len(raw), _PIECE)]
        if len(chunks) > MOST_PIECES:
            raise DeedboxError("body_too_large", f"An answer has at most {MOST_PIECES * _PIECE} bytes here.")
        head = f"{question_id}:{principal.principal_id}"
        pieces = [f"{head}:{place}:{len(chunks)}:{base64.b64encode(chunk).decode()}" for place, chunk in enumerate(chunks)]
        async with autocommit(self._pool) as connection:
            await asked.reply(connection, pieces)
