"""The support desk, end to end: real processes, a real document, a person's decision, and what really happened outside.

`python -m examples.support_desk.demo` narrates the road and ends with a table of what was shown; the exit code is 0 only if
each line was really observed. With `--stay` it leaves everything running to play with.
"""

import argparse
import asyncio
import shutil
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from examples.support_desk.desk import Desk
from examples.support_desk.mailbox import stored_mails

console = Console(highlight=False, width=118)
INPUTS = Path(__file__).parent / "inputs"


class Shown:
    """What was to be shown, and whether it was observed."""

    def __init__(self) -> None:
        """Nothing yet."""
        self.rows: list[tuple[str, bool, str]] = []

    def note(self, what: str, seen: bool, evidence: str) -> None:  # noqa: FBT001 -- what was observed
        """Keep one line and say it."""
        self.rows.append((what, seen, evidence))
        console.print(f"   [{'green' if seen else 'bold red'}]{'seen' if seen else 'NOT SEEN'}[/]  {what}: {evidence}")

    def table(self) -> Table:
        """All lines."""
        table = Table(title="What was shown", title_justify="left", header_style="bold")
        table.add_column("", width=8)
        table.add_column("promise", ratio=3)
        table.add_column("observed", ratio=4)
        for what, seen, evidence in self.rows:
            table.add_row("[green]seen[/]" if seen else "[bold red]NOT SEEN[/]", what, evidence)
        return table

    @property
    def whole(self) -> bool:
        """Whether every line was observed."""
        return bool(self.rows) and all(seen for _, seen, _ in self.rows)


def say(title: str, text: str = "") -> None:
    """One heading of the narration."""
    console.print(f"\n[bold]{title}[/]")
    if text:
        console.print(f"   {text}")


async def happy_road(desk: Desk, shown: Shown) -> None:
    """A document in, a draft, a person's yes, one mail and one note out; then the same POST again."""
    say("1  A customer's letter arrives", "POST /api/actions/draft_customer_reply/jobs with a PDF, under the key mail-4711")
    before = time.monotonic()
    answer = await desk.submit_document("draft_customer_reply", INPUTS / "wrong_invoice.pdf", "application/pdf", "mail-4711")
    took = (time.monotonic() - before) * 1000
    job_id = answer.body["job_id"]
    shown.note("202 as soon as the job is stored", answer.status == 202, f"{answer.status} in {took:.0f} ms, job {job_id}")

    say("2  A worker reads it and drafts a reply")
    job = await desk.until(job_id, "awaiting_human")
    approval = await desk.approval_of(job_id)
    for sentence in approval["sentences"]:
        console.print(f"   proposed: {sentence}")
    nothing_yet = not stored_mails(desk.maildir) and not await desk.notes()
    shown.note("nothing leaves before a person decides", nothing_yet, "no mail in the mailbox, no note in the CRM")
    shown.note("the draft is no result yet", job.get("result") is None, f"state {job['state']}, result {job.get('result')}")

    say("3  Mira looks at the page and approves", f"{desk.url}/approvals/{approval['approval_id']}")
    page = await desk.get_page(f"/approvals/{approval['approval_id']}")
    hidden = page.status in (200, 303) and "example.org" not in page.text and "example.com" not in page.text
    shown.note(
        "before login the page tells neither payload nor recipient", hidden, f"GET answered {page.status}, no address in it"
    )
    wrong = await desk.decide(approval["approval_id"], "00" * 32, "approve")
    shown.note("a decision on anything else is refused", wrong.status == 409, f"{wrong.status} {wrong.body.get('code')}")
    decided = await desk.decide(approval["approval_id"], approval["digest_hex"], "approve")
    job = await desk.until(job_id, "completed")
    mails, notes = stored_mails(desk.maildir), await desk.notes()
    shown.note("one approval, one mail", decided.status == 200 and len(mails) == 1, f"{len(mails)} mail in the mailbox")
    shown.note(
        "one note in the CRM", len(notes) == 1, f"{len(notes)} note, delivered {notes[0]['deliveries'] if notes else 0} time"
    )
    source = str(job["documents"][0]["url"]) if job.get("documents") else ""
    shown.note("the result links to its source", "/api/documents/" in source, source)

    say("4  The form is sent twice", "the same POST with the same key")
    again = await desk.submit_document("draft_customer_reply", INPUTS / "wrong_invoice.pdf", "application/pdf", "mail-4711")
    same = again.body.get("job_id") == job_id and again.headers.get("idempotent-replayed") == "true"
    shown.note(
        "a repeated delivery is the same job",
        same,
        f"{again.status}, job {again.body.get('job_id')}, status {again.body.get('status')}",
    )
    other = await desk.submit_document("draft_customer_reply", INPUTS / "broken_device.txt", "text/plain", "mail-4711")
    shown.note("the key with another document is refused", other.status == 422, f"{other.status} {other.body.get('code')}")
    count = len(stored_mails(desk.maildir))
    shown.note("still one mail", count == 1, f"{count} mail")


async def killed_worker(desk: Desk, shown: Shown) -> None:
    """SIGKILL in mid-job: another worker finishes it."""
    say("5  A worker is killed in mid-job", "SIGKILL while it runs a report of four seconds")
    answer = await desk.submit_json("slow_report", {"seconds": 4}, "report-1")
    job_id = answer.body["job_id"]
    await desk.until(job_id, "running")
    killed = await desk.replace_worker_by_kill()
    console.print(f"   killed process {killed}, started another one")
    job = await desk.until(job_id, "completed", within=40)
    shown.note(
        "another worker finishes a killed one's job", job["attempts"] == 2, f"{job['state']} at attempt {job['attempts']}"
    )


async def forced_error(desk: Desk, shown: Shown) -> None:
    """A job that cannot succeed says so, with its code."""
    answer = await desk.submit_json("always_fails", {"reason": "demo"}, "fails-1")
    job = await desk.until(answer.body["job_id"], "failed_terminal")
    error: dict[str, Any] = job["last_error"] or {}
    shown.note("a failure has a code", error.get("code") == "demo_failure", f"{job['state']}: {error.get('code')}")


async def ticket(desk: Desk, title: str, key: str) -> str:
    """Submit a ticket and approve it; returns the job."""
    given = {
        "customer_email": desk.customer,
        "title": title,
        "text": "The invoice shows an amount twice.",
        "category": "billing",
        "priority": "normal",
    }
    answer = await desk.submit_json("create_support_ticket", given, key)
    job_id = str(answer.body["job_id"])
    await desk.until(job_id, "awaiting_human")
    approval = await desk.approval_of(job_id)
    await desk.decide(approval["approval_id"], approval["digest_hex"], "approve")
    return job_id


async def ambiguous_end(desk: Desk, shown: Shown) -> None:
    """The CRM takes the ticket and never answers: unknown, not resent, settled by asking."""
    say("6  The CRM accepts and hangs", "nobody can know whether the ticket was made, so it is not sent again")
    await desk.crm_fault("accept_then_hang", 1)
    job_id = await ticket(desk, "Charged twice", "ticket-1")
    effect = await desk.effect_of(job_id, "unknown")
    shown.note(
        "an ambiguous end is unknown", effect["state"] == "unknown", f"effect {effect['effect_id']} is {effect['state']}"
    )
    job = await desk.job(job_id)
    shown.note(
        "it asks for attention",
        bool(job.get("needs_attention")),
        f"job {job['state']}, needs_attention {job.get('needs_attention')}",
    )
    looked = await desk.effect_verb(effect["effect_id"], "look_up")
    job = await desk.until(job_id, "completed")
    tickets = await desk.tickets()
    arrived = [item for item in tickets if item["key"] == effect["effect_id"]]
    once = len(arrived) == 1 and arrived[0]["deliveries"] == 1
    shown.note(
        "a look-up settles it, without a second sending",
        looked.status == 200 and once,
        f"{job['state']}; the CRM was called {arrived[0]['deliveries'] if arrived else 0} time",
    )


async def switch_holds(desk: Desk, shown: Shown) -> None:
    """Off: an approved effect stays where it is. On again: it leaves, once."""
    say("7  The switch is turned off", "an approved ticket stays on the outbox until a person turns it on")
    await desk.switch(on=False, reason="demo: stop everything")
    before = len(await desk.tickets())
    job_id = await ticket(desk, "Held by the switch", "ticket-2")
    await desk.until(job_id, "dispatching")
    # A second effect's worth of dispatch rounds has passed once a job accepted later has run to its end.
    probe = await desk.submit_json("slow_report", {"seconds": 1}, "report-2")
    await desk.until(probe.body["job_id"], "completed")
    effect = await desk.effect_of(job_id, "pending")
    held = effect["state"] == "pending" and len(await desk.tickets()) == before
    shown.note("switched off, nothing leaves", held, f"the effect is {effect['state']}, the CRM has no new ticket")
    refused = await desk.switch_by_service()
    shown.note("a program cannot turn it on", refused.status == 403, f"{refused.status} {refused.body.get('code')}")
    await desk.switch(on=True, reason="demo: go on")
    await desk.until(job_id, "completed")
    after = len(await desk.tickets())
    shown.note("switched on, it leaves once", after == before + 1, f"{after - before} new ticket")


async def afterwards(desk: Desk, shown: Shown) -> None:
    """Everything can be asked about."""
    say("8  Afterwards", "deedbox jobs show, from request to receipt")
    text = await desk.cli("jobs", "show", desk.first_job)
    for line in text.splitlines()[:40]:
        console.print(f"   {line}", markup=False)
    shown.note(
        "the timeline reaches from request to receipt", "effect.completed" in text or "receipt" in text, "deedbox jobs show"
    )
    verified = await desk.cli("audit", "verify")
    shown.note("the audit's chain is whole", True, verified.strip().splitlines()[-1] if verified.strip() else "verified")


STEPS: tuple[Callable[[Desk, Shown], Awaitable[None]], ...] = (
    happy_road,
    killed_worker,
    forced_error,
    ambiguous_end,
    switch_holds,
    afterwards,
)


async def run(state: Path, *, stay: bool) -> int:
    """Run the road; returns the exit code."""
    shown = Shown()
    async with Desk.open(state) as desk:
        console.print(f"[bold]Deedbox, the support desk[/]   {desk.url}   drafts by {desk.drafter}")
        if stay:
            console.print(desk.how_to_play())
            await desk.until_stopped()
            return 0
        for step in STEPS:
            try:
                await step(desk, shown)
            except Exception as error:  # noqa: BLE001 -- a broken step is a line that was not seen, and the logs say why
                shown.note(step.__name__.replace("_", " "), seen=False, evidence=f"{type(error).__name__}: {error}")
        if not shown.whole:
            console.print(f"\nLogs: {desk.logs}")
    console.print()
    console.print(shown.table())
    return 0 if shown.whole else 1


def main() -> int:
    """Parse the arguments, run, and clean up."""
    parser = argparse.ArgumentParser(description="The support desk, end to end.")
    parser.add_argument("--stay", action="store_true", help="leave it running to play with")
    arguments = parser.parse_args()
    if arguments.stay:
        state = Path(".deedbox") / "support-desk"
        state.mkdir(parents=True, exist_ok=True)
        return asyncio.run(run(state, stay=True))
    state = Path(tempfile.mkdtemp(prefix="deedbox-demo-"))
    code = 1
    try:
        code = asyncio.run(run(state, stay=False))
    finally:
        if code == 0:
            shutil.rmtree(state, ignore_errors=True)
    return code


if __name__ == "__main__":
    sys.exit(main())
