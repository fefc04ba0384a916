"""Processor time, read from /proc: of the database server, of our own processes, and of everybody else on the machine."""

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from time import monotonic

_TICKS = os.sysconf("SC_CLK_TCK")
_CORES = os.cpu_count() or 1
# Fields of /proc/PID/stat after the name, counted from the state: parent, and user and system time, own and of ended children.
_PARENT, _OWN, _ENDED = 1, slice(11, 13), slice(13, 15)


@dataclass(frozen=True, slots=True)
class Reading:
    """Seconds of processor time used up to a moment; `machine` is everybody's, ours included."""

    at: float
    server: float
    ours: dict[int, float]
    machine: float


@dataclass(frozen=True, slots=True)
class Used:
    """Between two readings: seconds that passed, seconds of processor time, and the share of the machine that others took."""

    seconds: float
    server: float
    ours: dict[int, float]
    others: float

    def micros(self, pids: Iterable[int], count: int) -> float:
        """Microseconds of processor time for one of `count`, of these processes and the database server together."""
        return (self.server + sum(self.ours[pid] for pid in pids)) / max(1, count) * 1e6


def read(postmaster: int, pids: Iterable[int]) -> Reading:
    """Read now: the server with all its children, living and ended, and each of these processes with all its threads."""
    mine = {pid: _seconds(_fields(pid)[_OWN]) for pid in (*pids, os.getpid())}
    return Reading(monotonic(), _server(postmaster), mine, _machine())


def between(before: Reading, after: Reading) -> Used:
    """What was used from one reading to the next."""
    seconds = after.at - before.at
    server = after.server - before.server
    ours = {pid: spent - before.ours.get(pid, 0.0) for pid, spent in after.ours.items()}
    others = (after.machine - before.machine) - server - sum(ours.values())
    return Used(seconds, server, ours, max(0.0, others / (seconds * _CORES)) if seconds > 0 else 0.0)


def _fields(pid: int) -> list[str]:
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return []
    return text[text.rindex(")") + 2 :].split()


def _seconds(ticks: list[str]) -> float:
    return sum(int(tick) for tick in ticks) / _TICKS


def _server(postmaster: int) -> float:
    own = _fields(postmaster)
    total = _seconds(own[_OWN]) + _seconds(own[_ENDED])
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            fields = _fields(int(entry.name))
            if fields and int(fields[_PARENT]) == postmaster:
                total += _seconds(fields[_OWN])
    return total


def _machine() -> float:
    first = Path("/proc/stat").read_text(encoding="ascii").splitlines()[0].split()
    user, nice, system, _idle, _waiting, *rest = (int(value) for value in first[1:9])
    return (user + nice + system + sum(rest)) / _TICKS
