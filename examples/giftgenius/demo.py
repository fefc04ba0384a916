"""Gift genius, end to end: real processes, a history of six thousand purchases, a shop that fails, and what was seen of it.

`python -m examples.giftgenius.demo` ends with a table of what was shown; the exit code is 0 only if each line was observed.
With `--stay` it leaves everything running to play with, for instance from an MCP client.
"""

import argparse
import asyncio
import shutil
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from rich.console import Console

from examples.giftgenius.house import House
from examples.giftgenius.make_history import ROWS, history
from examples.support_desk.demo import Shown, say

console = Console(highlight=False, width=118)
RECIPIENT = {"relation": "sister", "age": 34, "interests": ["hiking", "tea", "reading"], "dislikes": ["tech"]}


async def upload(house: House) -> str:
    """Hand the history in, as a person with a file does; returns the document's number."""
    files = {"purchases": ("history.csv", history(), "text/csv")}
    answer = await house.call("POST", "/api/actions/add_purchase_history/jobs", files=files)
    job = await house.until_over(str(answer.json()["job_id"]))
    return str(job["result"]["document_id"])


async def start(house: House, document_id: str, **changed: Any) -> str:
    """Start an analysis, as an agent does, which names the document; returns the job."""
    given = {"recipient": RECIPIENT, "budget_eur": 60, "purchases": {"document_id": document_id}, **changed}
    answer = await house.call("POST", "/api/actions/start_deep_analysis/jobs", json=given)
    answer.raise_for_status()
    return str(answer.json()["job_id"])


async def flaky_road(house: House, shown: Shown, document_id: str) -> None:
    """The whole job, while the shop answers 500 and 429 in between."""
    say("1  The analysis, while the shop fails now and then")
    before = time.monotonic()
    job_id = await start(house, document_id)
    job = await house.until_over(job_id)
    took = time.monotonic() - before
    events = await house.events(job_id)
    kinds = Counter(event["type"] for event in events)
    steps = [event["payload"]["step"] for event in events if event["type"] == "job.progress"]
    retries = [event["payload"] for event in events if event["type"] == "job.retrying"]
    for event in events:
        console.print(f"   {event['seq']:3} {event['type']:14} {_short(event['payload'])}", markup=False)
    shown.note("it ends with a result", job["state"] == "completed", f"{job['state']} after {took:.1f} s, {dict(kinds)}")
    rising = len(steps) >= 4 and steps == sorted(set(steps))
    shown.note("progress rises and never repeats", rising, f"steps {steps}")
    codes = sorted({str(retry["code"]) for retry in retries})
    seen = await house.shop()
    shown.note(
        "500 and 429 are retries that can be seen", codes == ["read_429", "read_500"], f"{len(retries)} retries: {codes}"
    )
    once = bool(seen["served"]) and set(seen["served"].values()) == {1}
    shown.note("what was read is not read again", once, f"{len(seen['served'])} answers served, each once; {seen['answered']}")
    drafts = [event for event in events if event["type"] == "job.partial"]
    marked = bool(drafts) and all(event["payload"]["draft"] for event in drafts)
    earlier = bool(drafts) and drafts[0]["seq"] < events[-1]["seq"]
    shown.note("first ideas come early, as drafts", marked and earlier, f"{len(drafts)} drafts before the result")
    result = job["result"]
    for place, idea in enumerate(result["ideas"], start=1):
        console.print(f"   {place}. {idea['title']}, {idea['price']:.2f} {idea['currency']}: {idea['reason']}", markup=False)
    good = bool(result["ideas"]) and all(idea["reason"] and idea["price"] <= 60 for idea in result["ideas"])
    shown.note("a ranking with reasons, within the budget", good, result["summary"])
    read = result["purchases"]
    shown.note("all rows were read, and it says which not", read["rows"] == ROWS + 1, f"{read}")
    again = await start(house, document_id)
    shown.note("the same request is the same job", again == job_id, again)
    shown_before = [idea["sku"] for idea in result["ideas"]]
    more = await house.until_over(await start(house, document_id, leave_out=shown_before))
    fresh = more["state"] == "completed" and not {idea["sku"] for idea in more["result"]["ideas"]} & {*shown_before}
    shown.note("more ideas are other ideas", fresh, str(more["result"] and more["result"]["summary"]))


async def killed_worker(house: House, shown: Shown, document_id: str) -> None:
    """SIGKILL in mid-job: another worker goes on where it was."""
    say("2  A worker is killed while it waits for the shop", "SIGKILL, after the history was read")
    await house.shop("held")
    job_id = await start(house, document_id, budget_eur=45)
    await house.until_shop("holding", 1)
    killed = await house.replace_worker_by_kill()
    await house.shop("well")
    job = await house.until_over(job_id)
    took_over = job["state"] == "completed" and job["attempts"] == 2
    shown.note("another worker finishes it", took_over, f"killed {killed}; {job['state']} at attempt {job['attempts']}")
    steps = [event["payload"]["step"] for event in await house.events(job_id) if event["type"] == "job.progress"]
    shown.note("and nothing is told twice", steps == sorted(set(steps)), f"steps {steps}")


async def cancel(house: House, shown: Shown, document_id: str) -> None:
    """A cancel reaches the code that runs."""
    say("3  The person loses patience", "cancel, while the worker waits for the shop")
    left = (await house.shop("held"))["left"]
    job_id = await start(house, document_id, budget_eur=30)
    await house.until_shop("holding", 1)
    answer = await house.call("POST", f"/api/jobs/{job_id}/cancel", json={"reason": "Found one myself."})
    job = await house.until_over(job_id)
    shown.note("it ends as canceled", job["state"] == "canceled", f"{answer.status_code}, then {job['state']}")
    seen = await house.until_shop("left", left + 1)
    shown.note("the handler has stopped", seen["left"] == left + 1, "the shop saw the caller hang up")
    await house.shop("well")


async def bad_input(house: House, shown: Shown) -> None:
    """What cannot be done says why."""
    say("4  What cannot be done")
    files = {"purchases": ("holiday.csv", b"beach,sun\n1,2\n", "text/csv")}
    answer = await house.call("POST", "/api/actions/add_purchase_history/jobs", files=files)
    job = await house.until_over(str(answer.json()["job_id"]))
    error: dict[str, Any] = job["last_error"] or {}
    shown.note("a file that is no history", error.get("code") == "unreadable_history", str(error.get("message")))
    given = {"recipient": RECIPIENT, "budget_eur": 60, "purchases": {"document_id": "0197f2a8-0000-7000-8000-0000000000d0"}}
    refused = await house.call("POST", "/api/actions/start_deep_analysis/jobs", json=given)
    errors: list[dict[str, Any]] = refused.json().get("errors") or [{}]
    pointer = errors[0].get("pointer")
    shown.note("a document nobody has", refused.status_code == 400, f"{refused.status_code} at {pointer}")


def _short(payload: dict[str, Any]) -> str:
    text = str(payload.get("message") or payload.get("value", {}).get("summary") or payload.get("code") or "")
    return text[:90]


async def run(state: Path, *, stay: bool = False, **settings: str) -> Shown:
    """Run the road, with these settings of Deedbox beside the example's own; what was shown."""
    shown = Shown()
    async with House.open(state, settings) as house:
        console.print(f"[bold]Gift genius[/]   {house.url}")
        document_id = await upload(house)
        if stay:
            console.print(f"   API key   {house.key}\n   MCP       {house.url}/mcp\n   document  {document_id}")
            console.print("   Ctrl-C stops everything.")
            await asyncio.Event().wait()
        roads = (
            lambda: flaky_road(house, shown, document_id),
            lambda: killed_worker(house, shown, document_id),
            lambda: cancel(house, shown, document_id),
            lambda: bad_input(house, shown),
        )
        for road in roads:
            try:
                await road()
            except Exception as error:  # noqa: BLE001 -- a broken road is a line that was not seen, and the logs say why
                shown.note("a part of the demo", seen=False, evidence=f"{type(error).__name__}: {error}")
    if not shown.whole:
        console.print(f"\nLogs: {state / 'logs'}")
    console.print()
    console.print(shown.table())
    return shown


def main() -> int:
    """Parse the arguments, run, and clean up."""
    parser = argparse.ArgumentParser(description="Gift genius, end to end.")
    parser.add_argument("--stay", action="store_true", help="leave it running to play with")
    parser.add_argument("--state", type=Path, default=None, help="where everything is kept; a new folder that goes away again")
    given = parser.parse_args()
    state = given.state or Path(tempfile.mkdtemp(prefix="giftgenius-"))
    code = 1
    try:
        code = 0 if asyncio.run(run(state, stay=given.stay)).whole else 1
    except KeyboardInterrupt:
        code = 0
    finally:
        if code == 0 and given.state is None:
            shutil.rmtree(state, ignore_errors=True)
    return code


if __name__ == "__main__":
    sys.exit(main())
