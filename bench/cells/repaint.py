"""From a progress call in the worker to the widget's repaint: a real browser and a host on the official bridge before our MCP.

The worker writes into its message when it calls; the page notes when it has painted that message. One machine, one clock.
"""

import shutil
import sys
from pathlib import Path
from statistics import mean
from tempfile import TemporaryDirectory
from typing import Any

from playwright.async_api import Browser, async_playwright

from bench.cells import mcp_start
from bench.child import Child
from bench.database import Server
from bench.samples import Sample, percentiles
from tests.servers.app_host import AppHost, app_host
from tools import node

CHROMIUM = shutil.which("chromium")
_ARGUMENTS = ["--no-sandbox", "--headless=new", "--disable-gpu", "--disable-background-networking"]
_PATIENCE_MS = 60_000
_WATCH = """() => {
  window.repainted = [];
  const step = document.getElementById('step');
  new MutationObserver(() => {
    const text = step.textContent;
    // A frame later it has been painted.
    requestAnimationFrame(() => setTimeout(() => window.repainted.push([text, Date.now()])));
  }).observe(step, { childList: true, characterData: true, subtree: true });
}"""


async def measure(server: Server, jobs: int) -> list[Sample]:
    """Follow so many jobs, one after the other. No sample, and a line that says why, where there is no browser or no Node."""
    missing = "there is no chromium on the PATH" if CHROMIUM is None else None if node.is_current() else node.MISSING
    if missing is not None:
        sys.stderr.write(f"repaint is left out: {missing}\n")
        return []
    async with server.fresh() as database:
        serve, work = (Child(mcp_start.MODULE, {"part": part}, database.url) for part in ("api", "worker"))
        async with serve as serving, work as working, async_playwright() as playwright:
            await working.hear()
            port = int((await serving.hear())["port"])
            browser = await playwright.chromium.launch(executable_path=CHROMIUM, args=_ARGUMENTS)
            waits = await _followed(browser, server.key, port, jobs)
            await browser.close()
            row = await database.row("SELECT count(*) FROM deedbox.result WHERE state = 'completed'")
    values = {**percentiles(waits, shares=(50, 95)), "mean": mean(waits) * 1000}
    # The browser's processes cannot be told from those of others, so nothing is said of them.
    return [Sample("repaint", values, len(waits), 0, jobs - int(row[0]), 0.0)]


async def _followed(browser: Browser, key: str, port: int, jobs: int) -> list[float]:
    waits: list[float] = []
    with TemporaryDirectory() as place:
        async with app_host(browser, Path(place)) as host:
            for number in range(jobs):
                waits += await _one(host, key, port, number)
    return waits


async def _one(host: AppHost, key: str, port: int, number: int) -> list[float]:
    """Seconds from each call to its repaint, but for the first, which the host's first answer may hold already."""
    async with host.chat() as chat:
        await chat.start(
            mcp=f"http://127.0.0.1:{port}/mcp",
            bearer=key,
            resource="ui://deedbox/job",
            named="run_steps",
            tool="run_steps",
            arguments={"number": number},
            prompt="Run the steps.",
        )
        await chat.view.locator("#step").wait_for(state="attached", timeout=_PATIENCE_MS)
        view = next(frame for frame in chat.page.frames if frame.parent_frame and frame.parent_frame.parent_frame)
        await view.evaluate(_WATCH)
        await chat.view.get_by_text("Done", exact=True).wait_for(timeout=_PATIENCE_MS)
        repainted: list[list[Any]] = await view.evaluate("() => window.repainted")
    sent = mcp_start.SENT_AT
    return [at / 1000 - float(text.removeprefix(sent)) for text, at in repainted if str(text).startswith(sent)]
