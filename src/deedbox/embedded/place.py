"""Decides where the cluster of a state directory lies and which account owns it.

Usually that is `postgres/` within the state directory. Started as root the server runs as another account, and where that
one cannot pass to the state directory (a checkout below a home with mode 0700), the cluster lies in a directory it can
reach and the state keeps a pointer to it. No directory that Deedbox did not make is ever given another mode or owner.
"""

import hashlib
import json
import os
import re
import shutil
import stat
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from deedbox.embedded.binaries import Binaries, find_binaries, reachable_bases
from deedbox.embedded.process import Account, EmbeddedError, shell

_SOCKET_PATH_MAX = 103  # bytes; the limit is 107 on Linux and 103 on macOS
_SOCKET_NAME = "/.s.PGSQL.5432"
# Marks that a list of directories or hosts, or a quoted setting, gives a meaning.
_UNFIT = re.compile(rb"""[,"'\\\x00-\x1f]""")
_ENTER = 'cd "$1" && test -w .'


@dataclass(frozen=True, slots=True)
class Place:
    """Where the server of one state directory lies, and what runs it."""

    state: Path
    home: Path
    account: Account | None
    binaries: Binaries

    @property
    def data(self) -> Path:
        """The data directory of the cluster."""
        return self.home / "data"

    @property
    def log(self) -> Path:
        """What the server says."""
        return self.home / "server.log"

    def program(self, name: str) -> Path:
        """The path of one of the server's programs."""
        return self.binaries.programs / name

    def say_account(self) -> str:
        """The account's name, or the caller's number."""
        return self.account.name if self.account else str(os.geteuid())


def control_directory(state: Path) -> Path:
    """Where a state keeps its locks, its secrets and its pointer."""
    return state / "embedded"


def pointed_home(state: Path) -> Path | None:
    """The cluster's directory elsewhere that this state points to, or None where it has none.

    A pointer that came with a copy of the directory, whose original still uses it, does not count: two checkouts never share
    a server.
    """
    pointer = control_directory(state) / "home"
    home, owner = _read_pointer(pointer)
    if home is None or owner is None:
        return None
    if owner != state and _read_pointer(control_directory(owner) / "home") == (home, owner):
        return None
    return home


def find_place(state: Path) -> Place:
    """Finds, or at the first call makes, the directory for the cluster of `state`; call it under the start lock.

    Raises EmbeddedError, which names DEEDBOX_STATE, where no directory fits or the one that was used has gone.
    """
    pointed = pointed_home(state)
    if pointed is not None:
        if not pointed.is_dir():
            message = (
                f"the database of {state} was in {pointed}, which is gone: bring it back, or remove "
                f"{control_directory(state) / 'home'} to begin with an empty one, or name another directory in DEEDBOX_STATE"
            )
            raise EmbeddedError(message)
        account = _account(state, pointed / "data")
        _write_pointer(state, pointed)
        return _usable(Place(state, pointed, account, find_binaries(account)))
    inside = state / "postgres"
    account = _account(state, inside / "data")
    place = Place(state, inside, account, find_binaries(account))
    if _make_home(place):
        return _usable(place)
    if (inside / "data").exists():
        message = f"the account {place.say_account()} cannot reach {inside}: name a directory that it can in DEEDBOX_STATE"
        raise EmbeddedError(message)
    for base in reachable_bases():
        place = Place(state, Path(tempfile.mkdtemp(prefix="state-", dir=base)), account, place.binaries)
        if _make_home(place):
            _write_pointer(state, place.home)
            return place
    message = f"found no directory that the account {place.say_account()} can reach: name one that it can in DEEDBOX_STATE"
    raise EmbeddedError(message)


def socket_directory(place: Place) -> Path:
    """The directory for the server's socket, mode 0700, the account's own: in the home, or a short one elsewhere.

    A short one is needed where the path is too long for a socket, or has a character that PostgreSQL's lists of directories
    or hosts give a meaning. Raises EmbeddedError, which names DEEDBOX_STATE, where there is none.
    """
    inside = place.home / "run"
    if _fits(inside) and _private(inside, place):
        return inside
    digest = hashlib.sha256(os.fsencode(place.home)).hexdigest()[:12]
    uid = place.account.uid if place.account else os.geteuid()
    for where in dict.fromkeys((tempfile.gettempdir(), "/tmp", "/var/tmp")):  # noqa: S108 - used only if it is ours
        short = Path(where) / f"deedbox-{uid}-{digest}"
        if _fits(short) and _private(short, place):
            return short
    message = f"found no directory for the server's socket: name a shorter path than {place.state} in DEEDBOX_STATE"
    raise EmbeddedError(message)


def _fits(directory: Path) -> bool:
    text = os.fsencode(directory)
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return len(text) + len(_SOCKET_NAME) <= _SOCKET_PATH_MAX and not _UNFIT.search(text)


def _private(directory: Path, place: Place) -> bool:
    """Makes the directory unless it is there, and says whether it is the account's own and closed to others."""
    if shell(f'mkdir -m 700 "$1" 2>/dev/null; {_ENTER}', directory, account=place.account).code != 0:
        return False
    found = directory.lstat()
    owner = place.account.uid if place.account else os.geteuid()
    return stat.S_ISDIR(found.st_mode) and found.st_uid == owner and stat.S_IMODE(found.st_mode) == stat.S_IRWXU


def _make_home(place: Place) -> bool:
    """Whether the place's home is there, the account's own, and one that the account can enter; leaves no refused one."""
    if "\n" in str(place.home):
        return False  # the server's pid file holds one value a line, and this path is one
    there = place.home.is_dir()
    try:
        place.home.mkdir(mode=0o700, exist_ok=True)
        if place.account and not place.data.exists():
            os.chown(place.home, place.account.uid, place.account.gid, follow_symlinks=False)
    except OSError:
        return False
    if shell(_ENTER, place.home, account=place.account).code == 0:
        return True
    if not there or not any(place.home.iterdir()):
        shutil.rmtree(place.home, ignore_errors=True)
    return False


def _usable(place: Place) -> Place:
    """Gives a home that a copy made by root left to root back to the account: the server never runs as root."""
    account = place.account
    if account and place.data.exists() and (found := place.data.lstat()).st_uid == 0 and stat.S_ISDIR(found.st_mode):
        for _, folders, names, descriptor in os.fwalk(place.home):
            for name in (".", *folders, *names):
                os.chown(name, account.uid, account.gid, dir_fd=descriptor, follow_symlinks=False)
    return place


def _account(state: Path, data: Path) -> Account | None:
    """The account to run the server: the caller, unless that is root; then who owns the data, the state, or a low one."""
    if os.geteuid() != 0:
        return None
    for owned in (data, state):
        if owned.exists() and (uid := owned.stat().st_uid) != 0 and (account := Account.of_uid(uid)):
            return account
    account = Account.of_name("postgres") or Account.of_name("nobody")
    if account is None:
        message = "PostgreSQL does not run as root, and there is no account postgres or nobody: run Deedbox as another account"
        raise EmbeddedError(message)
    return account


def _read_pointer(pointer: Path) -> tuple[Path | None, Path | None]:
    try:
        content: object = json.loads(pointer.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None, None
    if not isinstance(content, dict):
        return None, None
    values = cast("dict[str, object]", content)
    return Path(str(values.get("home"))), Path(str(values.get("state")))


def _write_pointer(state: Path, home: Path) -> None:
    pointer = control_directory(state) / "home"
    part = pointer.with_suffix(".part")
    part.write_text(json.dumps({"home": str(home), "state": str(state)}), encoding="utf-8")
    part.replace(pointer)
