"""`python -m tests.conformance_app` serves the fixtures until stopped; with `--write` it keeps the suite's summary."""

import asyncio
import json
import os
import secrets
import sys

from tests.database import RUN, fresh_database


async def _serve() -> None:
    from tests.conformance_app.serve import replicas

    async with fresh_database() as database, replicas(database, 2) as url:
        sys.stdout.write(f"{url}\n")
        sys.stdout.flush()
        await asyncio.Event().wait()


async def _write() -> None:
    from tests.conformance_app.serve import replicas
    from tests.test_mcp_conformance import REVISIONS, SUMMARY, run

    found: dict[str, dict[str, int]] = {}
    for revision in REVISIONS:
        async with fresh_database() as database, replicas(database, 2) as url:
            found[revision] = {name: scenario.passed for name, scenario in (await run(url, revision)).items()}
    SUMMARY.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    os.environ.setdefault(RUN, secrets.token_hex(5))
    asyncio.run(_write() if "--write" in sys.argv else _serve())
