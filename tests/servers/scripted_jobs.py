"""Jobs as `get_job` tells of them, and a server that answers with them: what the widget is shown where no job runs."""

import asyncio
from typing import Any
from uuid import UUID

JOB = str(UUID(int=0x0197F2A8_0000_7000_8000_00000000B001))
IDEAS = [
    {"title": "Head torch", "price": 49.9, "currency": "EUR", "reason": "Fits hiking.", "stars": 4.4, "sku": "OUT-016"},
    {"title": "Teapot", "price": 14.5, "currency": "EUR", "reason": "Fits tea.", "stars": 4.5, "sku": "HOM-006"},
]
OFFERS = [
    {"label": "More ideas", "message": "Please find more gift ideas."},
    {"label": "A narrower budget", "message": "Please find gifts for a smaller budget."},
]


def told(state: str = "running", **changed: Any) -> dict[str, Any]:
    """What `get_job` answers; `changed` are members of the envelope or of its data."""
    data: dict[str, Any] = {
        "state": state,
        "reason": state,
        "attempt": 1,
        "max_attempts": 5,
        "progress": None,
        "partial": None,
        "events": [],
        "next_after": 0,
        "complete": False,
        "approval": None,
        "result": None,
    }
    envelope: dict[str, Any] = {
        "status": "pending",
        "action": "find_gifts",
        "job_id": JOB,
        "object_id": None,
        "human_message": "Find gifts is under way.",
        "retryable": True,
        "audit_id": JOB,
        "error_code": None,
        "errors": [],
        "data": data,
    }
    for name, value in changed.items():
        (envelope if name in envelope else data)[name] = value
    return envelope


def done(**changed: Any) -> dict[str, Any]:
    """How a job ends well."""
    result = {"summary": "2 gifts for your sister, the best first.", "ideas": IDEAS, "purchases": {"rows": 6001}}
    given = {"status": "success", "human_message": "Find gifts: done.", "complete": True, "result": result, **changed}
    return told("completed", **given)


class Server:
    """Answers `get_job` with what stands at the moment, and keeps every call."""

    def __init__(self, now: dict[str, Any] | None = None) -> None:
        self.now = now or told()
        self.calls: list[tuple[str, dict[str, Any]]] = []
        self.called = asyncio.Condition()
        self.others: dict[str, dict[str, Any]] = {}
        self.broken = False
        self.free = asyncio.Event()
        self.free.set()

    async def answer(self, name: str, given: dict[str, Any]) -> dict[str, Any]:
        async with self.called:
            self.calls.append((name, given))
            self.called.notify_all()
        await self.free.wait()
        if self.broken:
            raise RuntimeError("the wire is cut")
        return self.now if name == "get_job" else self.others[name]

    async def until(self, name: str, count: int = 1) -> dict[str, Any]:
        """Wait for the n-th call of a tool; its arguments."""

        def found() -> list[dict[str, Any]]:
            return [given for called, given in self.calls if called == name]

        async with asyncio.timeout(20), self.called:
            await self.called.wait_for(lambda: len(found()) >= count)
        return found()[count - 1]
