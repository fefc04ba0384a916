"""The processes of an example: started on ports and a state of their own, ended by their ids, one killed where it shall be."""

import asyncio
import os
import signal
import sys
from dataclasses import dataclass, field
from pathlib import Path

import httpx2

ROOT = Path(__file__).resolve().parent.parent
"""Where every process starts."""
CLI = "deedbox.cli.main"
_COMMAND_S = 90.0
_READY_S = 60.0
_END_S = 20.0


class ExampleError(RuntimeError):
    """Something that did not come about in time, with what was seen last."""


@dataclass
class Processes:
    """What runs of an example, by name, and the environment in which it runs. `app` is the application of its workers."""

    state: Path
    environment: dict[str, str]
    http: httpx2.AsyncClient
    app: str
    processes: dict[str, asyncio.subprocess.Process] = field(
        default_factory=dict[str, asyncio.subprocess.Process], kw_only=True
    )

    @property
    def logs(self) -> Path:
        """Where each process writes."""
        return self.state / "logs"

    async def spawn(self, name: str, module: str, *arguments: str) -> None:
        """Start one Python process; its output goes to its log."""
        self.logs.mkdir(parents=True, exist_ok=True)
        with (self.logs / f"{name}.log").open("ab") as log:
            self.processes[name] = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                module,
                *arguments,
                env=self.environment,
                cwd=ROOT,
                stdout=log,
                stderr=log,
                stdin=asyncio.subprocess.DEVNULL,
            )

    async def serve(self, role: str) -> None:
        """Start one of Deedbox's processes (`api`, `worker`, `dispatch`) with the example's application."""
        await self.spawn(role, CLI, role, self.app)

    async def cli(self, *arguments: str, given: str | None = None) -> str:
        """Run one command to its end and return what it printed; `given` is the line it reads. Raises ExampleError."""
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            CLI,
            *arguments,
            env=self.environment | {"COLUMNS": "112"},
            cwd=ROOT,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        out, err = await asyncio.wait_for(process.communicate(f"{given}\n".encode() if given else b""), _COMMAND_S)
        if process.returncode:
            raise ExampleError(f"deedbox {' '.join(arguments[:2])}: {err.decode()[-600:]}")
        return out.decode()

    async def add_key(self, name: str, role: str, label: str) -> str:
        """Make an API key and return it."""
        return key_in(await self.cli("keys", "add", name, "--role", role, "--label", label))

    async def ready(self, url: str) -> None:
        """Wait until the API is ready. Raises ExampleError when its process ended instead."""
        async with asyncio.timeout(_READY_S):
            while not await is_ready(self.http, url):
                if self.processes["api"].returncode is not None:
                    raise ExampleError(f"the API did not start; see {self.logs / 'api.log'}")
                await asyncio.sleep(0.1)

    async def replace_worker_by_kill(self) -> int:
        """SIGKILL the worker and start another; returns the killed process's id."""
        old = self.processes["worker"]
        os.kill(old.pid, signal.SIGKILL)
        await old.wait()
        await self.serve("worker")
        return old.pid

    async def close(self) -> None:
        """End every process by its id, the neighbours last: politely, then not."""
        for process in reversed(self.processes.values()):
            if process.returncode is None:
                process.terminate()
        for process in self.processes.values():
            try:
                await asyncio.wait_for(process.wait(), _END_S)
            except TimeoutError:
                process.kill()
                await process.wait()


def sources() -> dict[str, str]:
    """What makes a process of an example find the sources, and write at once."""
    return {"PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src")]), "PYTHONUNBUFFERED": "1"}


def key_in(text: str) -> str:
    """The API key in what a command printed."""
    return next(word for word in text.split() if word.startswith("dbx_"))


async def is_ready(http: httpx2.AsyncClient, url: str) -> bool:
    """Whether a Deedbox says that it is ready; False as well while nobody listens."""
    try:
        return (await http.get(f"{url}/readyz")).is_success
    except httpx2.TransportError:
        return False


async def free_port() -> int:
    """A port of the loopback address that nobody has just now."""
    server = await asyncio.start_server(lambda _reader, _writer: None, "127.0.0.1", 0)
    port = int(server.sockets[0].getsockname()[1])
    server.close()
    await server.wait_closed()
    return port


async def port_in(path: Path) -> int:
    """The port that a process writes into a file when it listens."""
    async with asyncio.timeout(30):
        while not (text := await asyncio.to_thread(_read, path)):  # noqa: ASYNC110 -- another process writes the file
            await asyncio.sleep(0.05)
    return int(text)


def _read(path: Path) -> str:
    return path.read_text().strip() if path.exists() else ""
