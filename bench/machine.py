"""Where and on what a run was made, so that its figures can be read later."""

import importlib.metadata
import os
import platform
import subprocess
import time
from pathlib import Path
from typing import Any

from bench.child import ROOT

_PACKAGES = ("asyncpg", "httptools", "httpx2", "psycopg", "pydantic", "starlette", "uvicorn", "uvloop")


def describe() -> dict[str, Any]:
    """Cores, processor, memory, kernel, Python and the packages that matter."""
    return {
        "cores": os.cpu_count(),
        "processor": _first_of("/proc/cpuinfo", "model name", platform.machine()),
        "memory_gib": round(int(_first_of("/proc/meminfo", "MemTotal", "0 kB").split()[0]) / 2**20),
        "kernel": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "packages": {name: importlib.metadata.version(name) for name in _PACKAGES},
    }


def commit() -> tuple[str, bool]:
    """The commit, and whether the product or the bench has changes beyond it; `unknown` where git does not answer."""
    head = _git("rev-parse", "--short=12", "HEAD")
    return head or "unknown", bool(_git("status", "--porcelain", "--", "src", "bench/*.py", "bench/cells", "bench/peers"))


def now() -> str:
    """The date in UTC, as it stands in the results and in their names."""
    return time.strftime("%Y-%m-%dT%H:%MZ", time.gmtime())


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else ""


def _first_of(path: str, field: str, otherwise: str) -> str:
    for line in Path(path).read_text(encoding="utf-8").splitlines():
        name, _, value = line.partition(":")
        if name.strip() == field:
            return value.strip()
    return otherwise
