"""Write `src/deedbox/store/schema.sql`: the schema as the migrations make it, for people to read and for a test to compare.

`python -m tools.schema` needs no server of one's own: it migrates a database of the embedded PostgreSQL and dumps it.
"""

import asyncio
import re
import subprocess
import tempfile
from pathlib import Path

from deedbox import embedded
from deedbox.embedded.binaries import find_binaries
from deedbox.store.migrate import migrate

TARGET = Path(__file__).resolve().parent.parent / "src/deedbox/store/schema.sql"
HEAD = "-- Written by `python -m tools.schema` from the migrations; do not edit. Monthly partitions are left out.\n\n"


def dump(url: str) -> str:
    """The schema of a migrated database, without partitions of months and without what differs from run to run."""
    programs = find_binaries(None).programs
    done = subprocess.run(
        [
            programs / "pg_dump",
            "--schema-only",
            "--schema=deedbox",
            "--no-owner",
            "--no-privileges",
            "--exclude-table=deedbox.*_20??_??",
            f"--dbname={url}",
        ],
        check=True,
        capture_output=True,
        text=True,
    )
    lines = [line for line in done.stdout.splitlines() if not line.startswith(("--", "\\", "SET ", "SELECT pg_catalog"))]
    return HEAD + re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip() + "\n"


def main() -> None:
    """Write the file."""
    with tempfile.TemporaryDirectory() as place, embedded.start(Path(place) / "state") as running:
        asyncio.run(migrate(running.info.owner_url))
        TARGET.write_text(dump(running.info.owner_url))
        running.stop()
    print(f"wrote {TARGET.name}")


if __name__ == "__main__":
    main()
