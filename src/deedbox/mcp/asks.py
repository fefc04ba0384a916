"""What a caller's client is asked while a job waits: to open the page of an approval. Its answer is never a decision."""

from collections.abc import Mapping
from typing import Any, Protocol, cast

from deedbox.mcp.context import Ctx, is_modern, opens_pages
from deedbox.operate.asking import ANSWERS, ApprovalPages, Page
from deedbox.operate.job_view import JobView


class Asks(Protocol):
    """Requests for input by key, as a task shows them, and what becomes of the responses."""

    async def wanted(self, ctx: Ctx, job: JobView) -> dict[str, dict[str, Any]]:
        """The requests that are still open, as this caller can take them; none where it cannot take any."""
        ...

    async def answered(self, ctx: Ctx, job: JobView, responses: Mapping[str, Any]) -> None:
        """Take responses; keys that are unknown or were answered are passed over."""
        ...


class PageAsks:
    """Asks by URL alone, and only where the client says that it can open one: nothing is ever filled in at a host."""

    def __init__(self, pages: ApprovalPages) -> None:
        """`pages` knows what is open."""
        self._pages = pages

    async def wanted(self, ctx: Ctx, job: JobView) -> dict[str, dict[str, Any]]:
        """An elicitation by URL for each open approval."""
        if not opens_pages(ctx):
            return {}
        return {page.key: request_of_page(ctx, page) for page in await self._pages.open(job)}

    async def answered(self, ctx: Ctx, job: JobView, responses: Mapping[str, Any]) -> None:
        """Note that the page was shown, or not. The decision is made on the page, by whoever logs in there."""
        given = {key: answer for key, value in responses.items() if (answer := _action(value)) is not None}
        await self._pages.answered(job, given)
        del ctx


def request_of_page(ctx: Ctx, page: Page) -> dict[str, Any]:
    """The elicitation that asks to open a page; the older protocol wants an id in it."""
    params = {"mode": "url", "message": page.message, "url": page.url}
    return {"method": "elicitation/create", "params": params if is_modern(ctx) else {**params, "elicitationId": page.key}}


def _action(value: object) -> str | None:
    if not isinstance(value, dict):
        return None
    action = cast("dict[str, object]", value).get("action")
    return str(action) if action in ANSWERS else None


__all__ = ["Asks", "PageAsks", "request_of_page"]
