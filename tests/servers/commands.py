"""Commands run by the real `main()`, each in a process of its own that is forked from one that has imported everything.

Importing is most of what a command costs, so a test that runs ten of them pays for it once. What is forked has its own
arguments, environment, directory and standard streams, as a shell would give it; what is not shown this way, that the command
starts from nothing, is shown where tests start it so.
"""

import asyncio
import atexit
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import traceback
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

from deedbox.access import IdSource, Pool, add_key, add_user

ROOT = Path(__file__).resolve().parent.parent.parent
PASSWORD = "ein langes Paßwort"
DEADLINE_S = 60


@dataclass(frozen=True)
class Ended:
    """How a command ended: its exit code and what it said."""

    code: int
    out: str
    err: str

    def json(self) -> Any:
        """Standard output, as JSON."""
        return json.loads(self.out)


@dataclass(frozen=True)
class Cli:
    """The command line in one directory, with one database or none, and settings of its own."""

    url: str | None
    cwd: Path
    extra: Mapping[str, str] = field(default_factory=dict[str, str])

    @property
    def environment(self) -> dict[str, str]:
        """What every command of it is given; nothing of this machine's settings goes in."""
        return environment(self.url, self.extra)

    def but(self, **extra: str) -> "Cli":
        """The same with other settings."""
        return Cli(self.url, self.cwd, {**self.extra, **extra})

    async def __call__(self, *arguments: str, stdin: str = "") -> Ended:
        """Run one command to its end; an error that nobody expected fails the test."""
        ended = await asyncio.to_thread(forking().run, arguments, env=self.environment, cwd=self.cwd, stdin=stdin)
        assert "Traceback" not in ended.err, ended.err
        return ended


def environment(url: str | None, extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment without anything of this machine's settings, and with a place for compiled modules."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("DEEDBOX_", "AI_ACTIONS", "PG", "PYTHONDONTWRITE", "COLUMNS", "LINES"))
    }
    named = {} if url is None else {"DEEDBOX_DATABASE_URL": url}
    # Where nothing is kept beside the sources, every process would compile everything again.
    kept |= {"PYTHONPYCACHEPREFIX": str(_folder() / "compiled")} if sys.dont_write_bytecode else {}
    return {**kept, "PYTHONPATH": str(ROOT / "src"), "PYTHONUTF8": "1", **named, **(extra or {})}


@cache
def _folder() -> Path:
    """A directory of this process's own, which goes with it."""
    made = Path(tempfile.mkdtemp(prefix="deedbox-cli-"))
    atexit.register(shutil.rmtree, made, ignore_errors=True)
    return made


@cache
def forking() -> "Forking":
    """The one of this test process."""
    one = Forking(_folder())
    atexit.register(one.close)
    return one


class Forking:
    """A process that has imported everything and forks for every command."""

    def __init__(self, folder: Path) -> None:
        """Start it; `folder` takes what the commands say."""
        self._folder = folder
        self._process = subprocess.Popen(
            [sys.executable, "-P", str(Path(__file__))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=folder,
            env=environment(None),
        )

    def run(self, arguments: Sequence[str], *, env: Mapping[str, str], cwd: Path, stdin: str) -> Ended:
        """Run one command to its end. Raises TimeoutError after DEADLINE_S seconds."""
        given, out, err = (self._folder / name for name in ("stdin", "stdout", "stderr"))
        given.write_text(stdin, encoding="utf-8")
        streams = [str(path) for path in (given, out, err)]
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps([list(arguments), dict(env), str(cwd), streams]) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        assert answer, "the process that forks has ended"
        if int(answer) == -signal.SIGKILL:
            raise TimeoutError(f"deedbox {' '.join(arguments)} did not end: {err.read_text(encoding='utf-8')}")
        return Ended(int(answer), out.read_text(encoding="utf-8"), err.read_text(encoding="utf-8"))

    def close(self) -> None:
        """End it, whatever it does."""
        self._process.kill()
        self._process.communicate()


def _fork_for_each_line(main: Callable[[], None]) -> None:
    """Read a command per line, fork, be it there, and answer with its exit code here."""
    for line in sys.stdin:
        arguments, env, cwd, streams = json.loads(line)
        child = os.fork()
        if child == 0:
            _become(main, arguments, env, cwd, streams)
        # A handler of the child's own would be lost with it: the fork comes first.
        signal.signal(signal.SIGALRM, lambda _number, _frame, child=child: os.kill(child, signal.SIGKILL))
        signal.alarm(DEADLINE_S)
        _, status = os.waitpid(child, 0)
        signal.alarm(0)
        sys.stdout.write(f"{os.waitstatus_to_exitcode(status)}\n")
        sys.stdout.flush()


def _become(main: Callable[[], None], arguments: list[str], env: dict[str, str], cwd: str, streams: list[str]) -> None:
    """Be the command, from its streams to its exit code; does not return."""
    for number, path in enumerate(streams):
        os.dup2(os.open(path, os.O_RDONLY if number == 0 else os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), number)
    sys.stdin = os.fdopen(0, encoding="utf-8", closefd=False)
    os.environ.clear()
    os.environ.update(env)
    os.chdir(cwd)
    sys.argv = ["deedbox", *arguments]
    code: object = None
    try:
        main()
    except SystemExit as ended:
        code = ended.code
    except BaseException:  # noqa: BLE001 -- as an interpreter ends
        traceback.print_exc()
        code = 1
    finally:
        with suppress(OSError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code if isinstance(code, int) else code is not None)


# What most of these tests say ------------------------------------------------------------------------------------------


def refused(ended: Ended, code: int, words: str) -> None:
    """One line on standard error, and nothing else."""
    assert (ended.code, ended.out) == (code, ""), ended
    assert len(ended.err.splitlines()) == 1, ended.err
    assert words in ended.err


@asynccontextmanager
async def opened_pool(url: str) -> AsyncGenerator[Pool]:
    """A pool for what a test prepares without the command line."""
    pool = Pool(url, "test cli", size=3)
    await pool.open()
    try:
        yield pool
    finally:
        await pool.close()


async def people(url: str, **roles: str) -> None:
    """Make people without a process for each; their own test makes one by the command."""
    async with opened_pool(url) as pool:
        ids = await IdSource.read(pool)
        for name, wanted in roles.items():
            await add_user(pool, ids, "default", name, wanted.split(), PASSWORD)


async def key_of(url: str) -> str:
    """A key of a program that may operate."""
    async with opened_pool(url) as pool:
        return await add_key(pool, await IdSource.read(pool), "default", "caller", ["operator"], "")


if __name__ == "__main__":
    from deedbox.cli import main as command_line

    command_line.command_line()
    # And what one that asks a provider brings.
    for module in ("http", "smtp"):
        import_module(f"deedbox.connectors.{module}")
    _fork_for_each_line(command_line.main)


@asynccontextmanager
async def introduced(process: asyncio.subprocess.Process, within: float = DEADLINE_S) -> AsyncGenerator[str]:
    """What a server said up to the end of its introduction, within so many seconds; it is gone when the block ends."""
    assert process.stdout is not None
    said = ""
    try:
        async with asyncio.timeout(within):
            while "\nto stop" not in said:
                line = (await process.stdout.readline()).decode()
                assert line, f"it ended: {said}"
                said += line
        yield said
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


def address_in(said: str) -> str:
    """Where a server says that it listens."""
    found = re.search(r"http://127\.0\.0\.1:\d+", said)
    assert found, said
    return found[0]
