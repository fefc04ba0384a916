"""A virtual environment of its own from a lock file: made by the installer in the way of tools/set_up.py.

Everything is pinned with a hash, and a stamp says what is there, so that making it again costs nothing until its lock changes.
"""

import fcntl
import hashlib
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from tools.set_up import ROOT, run

_STAMP = "deedbox-stamp"


@dataclass(frozen=True, slots=True)
class OwnEnvironment:
    """Where it is, the lock file of its versions, and a module that it has when it is whole."""

    place: Path
    lock: Path
    holds: str

    @property
    def python(self) -> Path:
        """Its interpreter."""
        return self.place / "bin" / "python"

    def is_current(self) -> bool:
        """Whether it is there, of this lock file, and its interpreter starts."""
        stamp = self.place / _STAMP
        if not stamp.is_file() or stamp.read_text(encoding="ascii").strip() != self._wanted():
            return False
        # An interpreter that was moved or upgraded away leaves a stamp behind.
        look = f"import importlib.util; raise SystemExit(importlib.util.find_spec({self.holds!r}) is None)"
        return subprocess.run([self.python, "-c", look], capture_output=True, check=False).returncode == 0

    def make(self) -> None:
        """Make it anew. Raises SetUpError when a step of it fails, OSError when its place cannot be written."""
        self.place.parent.mkdir(parents=True, exist_ok=True)
        with self.place.with_suffix(".lock").open("w", encoding="ascii") as held:
            fcntl.flock(held, fcntl.LOCK_EX)
            if self.is_current():  # somebody made it while this waited
                return
            uv = (sys.executable, "-m", "uv")
            run(*uv, "venv", "--quiet", "--clear", "--python", sys.executable, str(self.place))
            lock = str(self.lock.relative_to(ROOT))
            run(*uv, "pip", "sync", "--quiet", "--compile-bytecode", "--require-hashes", "--python", str(self.python), lock)
            (self.place / _STAMP).write_text(self._wanted() + "\n", encoding="ascii")

    def _wanted(self) -> str:
        return hashlib.sha256(self.lock.read_bytes() + b"\0" + sys.version.encode()).hexdigest()
