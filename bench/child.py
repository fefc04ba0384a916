"""Processes that are measured: each is a module of `bench.cells`, run afresh, and speaks JSON a line with the bench."""

import asyncio
import json
import os
import sys
from collections.abc import Callable, Coroutine
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, Self, TypeAlias

import uvloop

ROOT = Path(__file__).resolve().parent.parent
_LONGEST_LINE = 1 << 26


class ChildError(RuntimeError):
    """A measured process died, or did not answer in time; the text has the end of what it wrote to standard error."""


class Child:
    """One measured process, seen from the bench. Leaving the `async with` block ends it, by force if need be."""

    def __init__(self, module: str, options: dict[str, Any], url: str, *, python: str = sys.executable) -> None:
        """`url` is the database's; the process gets no other setting of Deedbox than this one. `python` runs it."""
        self._python = python
        self._module = module
        self._options = options
        self._environment = {name: value for name, value in os.environ.items() if not name.startswith(("DEEDBOX_", "PG"))}
        self._environment |= {"DEEDBOX_DATABASE_URL": url, "PYTHONPATH": os.pathsep.join((str(ROOT / "src"), str(ROOT)))}
        self._process: asyncio.subprocess.Process
        # A file and not a pipe: nobody reads a pipe while the measurement runs, and a full one would stop the process.
        self._errors = TemporaryFile()  # noqa: SIM115 -- closed in __aexit__

    async def __aenter__(self) -> Self:
        """Start it; it sets itself up and says when it is ready."""
        self._process = await asyncio.create_subprocess_exec(
            self._python,
            "-m",
            self._module,
            json.dumps(self._options),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=self._errors,
            cwd=ROOT,
            env=self._environment,
            limit=_LONGEST_LINE,
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        """End it."""
        if self._process.returncode is None:
            with suppress(ProcessLookupError):
                self._process.kill()
            await self._process.wait()
        self._errors.close()

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    async def hear(self, within: float = 60.0) -> dict[str, Any]:
        """Its next line, waited for at most `within` seconds. Raises ChildError."""
        assert self._process.stdout is not None
        try:
            line = await asyncio.wait_for(self._process.stdout.readline(), within)
        except TimeoutError:
            raise ChildError(f"{self._module} said nothing within {within:.0f} s: {self.said()}") from None
        if not line:
            raise ChildError(f"{self._module} ended: {self.said()}")
        return json.loads(line)

    def tell(self, word: str) -> None:
        """Send it a line."""
        assert self._process.stdin is not None
        self._process.stdin.write(word.encode() + b"\n")

    def said(self) -> str:
        """The end of what it wrote to standard error."""
        return Path(f"/proc/self/fd/{self._errors.fileno()}").read_bytes().decode(errors="replace")[-3000:]


class Bench:
    """The bench, seen from a measured process."""

    def __init__(self, reader: asyncio.StreamReader) -> None:
        """`reader` reads standard input."""
        self._reader = reader

    def say(self, **values: Any) -> None:
        """Send it a line."""
        sys.stdout.write(json.dumps(values) + "\n")
        sys.stdout.flush()

    async def report(self, **values: Any) -> None:
        """Send it the figures, and stay until it has read what this process and its connections have used."""
        self.say(**values)
        await self.told()

    async def told(self) -> str:
        """Wait for its next line; empty when it has gone."""
        return (await self._reader.readline()).decode().strip()


# Says `ready`, waits for the word, measures, says the figures: given options, the database's URL and the bench.
Main: TypeAlias = Callable[[dict[str, Any], str, Bench], Coroutine[Any, Any, None]]


def run(main: Main) -> None:
    """Run a measured process: options from the command line, uvloop as event loop, as in production."""

    async def everything() -> None:
        reader = asyncio.StreamReader()
        await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
        await main(json.loads(sys.argv[1]), os.environ["DEEDBOX_DATABASE_URL"], Bench(reader))

    uvloop.run(everything())
