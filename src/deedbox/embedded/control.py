"""Launches the server, waits until it answers, and stops it."""

import os
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from deedbox.embedded.cluster import PORT, write_settings
from deedbox.embedded.locks import Locks, is_held, try_exclusive
from deedbox.embedded.place import Place, socket_directory
from deedbox.embedded.process import EmbeddedError, run, shell, write_as

# The server goes to the background at once, with the lock that is its sign of life. sh quotes nothing here: "$@" is as given.
_LAUNCH = 'log=$1; shift; "$@" </dev/null >>"$log" 2>&1 &'
_READY_SECONDS = 300.0  # after a crash the server first replays its log, which may take minutes
_STOP_SECONDS = 60
_PAUSE_SECONDS = 0.01
_LOG_KEPT_BYTES = 10_000_000
_LOG_SHOWN_BYTES = 2_000
_SOCKET = f".s.PGSQL.{PORT}"
_STATUS_LINE = 7
_DEAD_PID = 2**30  # larger than any system's largest process number


@dataclass(frozen=True, slots=True)
class PidFile:
    """What the server writes into `postmaster.pid`."""

    pid: int
    sockets: Path
    ready: bool

    @classmethod
    def of(cls, data: Path) -> "PidFile | None":
        """The content of the file in `data`, or None where there is none or it is not whole yet."""
        try:
            lines = (data / "postmaster.pid").read_text(encoding="utf-8", errors="surrogateescape").splitlines()
            return cls(abs(int(lines[0])), Path(lines[4]), lines[_STATUS_LINE].strip() == "ready")
        except (OSError, ValueError, IndexError):
            return None


def answering(place: Place, locks: Locks) -> Path | None:
    """The directory of the socket that the place's server answers on, or None where no server is ready there."""
    written = PidFile.of(place.data)
    if written is None or not written.ready or not (is_held(locks.server) or _started_by_hand(place)):
        return None
    with socket.socket(socket.AF_UNIX) as connection:
        try:
            connection.connect(str(written.sockets / _SOCKET))
        except OSError:
            return None
    return written.sockets


def ensure_running(place: Place, locks: Locks) -> Path:
    """Starts the server unless it answers, waits until it does, and returns its socket's directory.

    Call it under the start lock. Raises EmbeddedError with the end of the log where the server ends or stays silent.
    """
    deadline = time.monotonic() + _READY_SECONDS
    while True:
        sockets = answering(place, locks)
        if sockets is not None:
            return sockets
        lock = None if _started_by_hand(place) else try_exclusive(locks.server)
        if lock is not None:
            directory = socket_directory(place)
            _retire_pid_files(place, directory)
            write_settings(place, directory)
            said = _launch(place, lock)
            return _wait(place, locks, deadline, said)
        # Some process of the server lives: still starting, still stopping, or what a killed one left to finish its work.
        if time.monotonic() > deadline:
            message = f"the server in {place.home} runs but does not answer: {_tail(place.log, 0)}"
            raise EmbeddedError(message)
        time.sleep(_PAUSE_SECONDS)


def stop_server(place: Place, locks: Locks) -> bool:
    """Stops the server, in order if it can be and at once if not, and says whether one ran. Call it under the start lock."""
    if not is_held(locks.server) and answering(place, locks) is None:
        return False
    written = PidFile.of(place.data)
    stop = [place.program("pg_ctl"), "stop", "-D", place.data, "-w", "-t", str(_STOP_SECONDS)]
    ended = run([*stop, "-m", "fast"], account=place.account, seconds=2 * _STOP_SECONDS)
    if ended.code != 0 and is_held(locks.server):
        ended = run([*stop, "-m", "immediate"], account=place.account, seconds=2 * _STOP_SECONDS)
    # pg_ctl waits for the pid file to go, which is a little before the last process has.
    if not _until(lambda: not is_held(locks.server), time.monotonic() + _STOP_SECONDS):
        message = f"the server in {place.home} does not stop: {ended.said}"
        raise EmbeddedError(message)
    if written is not None and not written.sockets.is_relative_to(place.home):
        shell('rmdir "$1"', written.sockets, account=place.account)
    return True


def _launch(place: Place, lock: int) -> Callable[[], str]:
    """Starts the server with `lock` as its own; returns what tells the log it wrote since."""
    try:
        since = place.log.stat().st_size if place.log.exists() else 0
        if since > _LOG_KEPT_BYTES:
            shell('mv -f "$1" "$1.1"', place.log, account=place.account)
            since = 0
        command = [place.program("postgres"), "-D", place.data]
        ended = shell(_LAUNCH, place.log, *command, account=place.account, keep=[lock])
    finally:
        os.close(lock)
    if ended.code != 0:
        message = f"the server in {place.home} cannot be launched: {ended.said}"
        raise EmbeddedError(message)
    return lambda: _tail(place.log, since)


def _wait(place: Place, locks: Locks, deadline: float, said: Callable[[], str]) -> Path:
    found: list[Path] = []

    def over() -> bool:
        sockets = answering(place, locks)
        if sockets is not None:
            found.append(sockets)
        return sockets is not None or not is_held(locks.server)

    if _until(over, deadline) and found:
        return found[0]
    message = f"the server in {place.home} did not start; its log says: {said()}"
    raise EmbeddedError(message)


def _until(done: Callable[[], bool], deadline: float) -> bool:
    while not done():
        if time.monotonic() > deadline:
            return False
        time.sleep(_PAUSE_SECONDS)
    return True


def _retire_pid_files(place: Place, sockets: Path) -> None:
    """Takes out of use what a killed server left; call it with the server's lock held, which says that nothing of it lives.

    The server refuses to start while a number it finds is in use, even by a stranger. In its pid file the number becomes one
    that no process has, and the rest stays: by it the server checks that nobody holds the old shared memory, which would ruin
    the data. The lock file of the socket says nothing more, and goes.
    """
    lock_file = sockets / f"{_SOCKET}.lock"
    if lock_file.exists():
        shell('rm -f "$1"', lock_file, account=place.account)
    path = place.data / "postmaster.pid"
    try:
        lines = path.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except FileNotFoundError:
        return
    if lines:
        lines = [str(_DEAD_PID), *lines[1:_STATUS_LINE], *("stale" for _ in lines[_STATUS_LINE:])]
        write_as(path, "\n".join(lines) + "\n", account=place.account)


def _started_by_hand(place: Place) -> bool:
    """Whether the process of the pid file is a server of this data, though not one started here: it holds no lock of ours."""
    try:
        pid = (place.data / "postmaster.pid").read_bytes().split(maxsplit=1)[0].decode()
        return Path(f"/proc/{pid}/cwd").samefile(place.data)
    except (OSError, IndexError, UnicodeDecodeError):
        return False


def _tail(log: Path, since: int) -> str:
    try:
        with log.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(since, size - _LOG_SHOWN_BYTES))
            return file.read().decode(errors="replace").strip()
    except OSError as error:
        return str(error)
