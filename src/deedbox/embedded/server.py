"""The public face: start the embedded server and become a user of it, stop it, ask how it is."""

import atexit
import os
import shutil
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.parse import quote

from deedbox.embedded import cluster, control
from deedbox.embedded.locks import Locks, become_exclusive, exclusive, is_held, share, try_exclusive
from deedbox.embedded.place import Place, control_directory, find_place, pointed_home
from deedbox.embedded.process import EmbeddedError


@dataclass(frozen=True, slots=True)
class Embedded:
    """How to reach a started server: libpq URLs over its socket, each with its password.

    `owner_url` is the superuser's (migrations, making databases; not for the loops), `app_url` that of `deedbox_app`.
    """

    owner_url: str
    app_url: str
    state_dir: Path
    server_version: str

    def __repr__(self) -> str:
        """Shows no URL: they hold passwords."""
        return f"Embedded(state_dir={str(self.state_dir)!r}, server_version={self.server_version!r})"


@dataclass(frozen=True, slots=True)
class Status:
    """What is there for a state directory, found without changing anything."""

    made: bool
    running: bool
    in_use: bool
    home: Path
    log: Path
    sockets: Path | None
    pid: int | None


class Running:
    """One user of a started server. The server stops when its last user stops, leaves the `with` block, or exits.

    A killed user counts no more from that moment, but stops nothing: the next to start and stop does.
    """

    def __init__(self, info: Embedded, place: Place, locks: Locks, user: int) -> None:
        """Made by `start` alone; `user` is the descriptor that holds the shared lock."""
        self.info = info
        self._place = place
        self._locks = locks
        self._user: int | None = user
        self._process = os.getpid()
        atexit.register(self.stop)

    def stop(self) -> None:
        """Ends this use, and stops the server if it was the last. A second call does nothing, nor one in a forked child.

        Raises EmbeddedError where the server does not stop.
        """
        user = self._user
        if user is None or os.getpid() != self._process:
            return
        self._user = None
        atexit.unregister(self.stop)
        try:
            # A state directory that was removed meanwhile has nothing left to stop: the server notices by itself.
            with suppress(FileNotFoundError), exclusive(self._locks.start):
                if become_exclusive(user):
                    control.stop_server(self._place, self._locks)
        finally:
            os.close(user)

    def __enter__(self) -> Self:
        """The user itself."""
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Ends the use."""
        self.stop()


def start(state: Path, *, database: str = "deedbox") -> Running:
    """Makes the cluster of `state` at the first call, starts its server unless it runs, makes `database` unless it is there.

    Safe from several processes at once: they share one server. Blocks for about two seconds at the first call of a state and
    for a fraction of one afterwards; after a crash for as long as the recovery takes, at most five minutes.
    Raises ValueError for a database name that would need quoting, EmbeddedError where the server cannot be made or started.
    """
    cluster.check_database_name(database)
    state = _prepared(state)
    directory = control_directory(state)
    locks = Locks.within(directory)
    try:
        with exclusive(locks.start):
            user = share(locks.users)
            place = None
            try:
                place = find_place(state)
                words = cluster.passwords(directory, place)
                cluster.make_cluster(place, words)
                sockets = control.ensure_running(place, locks)
                cluster.make_database(place, words, sockets, database)
                _hand_over(state, directory)
            except BaseException:
                if place and become_exclusive(user):
                    with suppress(EmbeddedError, OSError):  # the first error is the one to tell
                        control.stop_server(place, locks)
                os.close(user)
                raise
    except OSError as error:
        raise _unusable(state, error) from error
    owner_url = _url(cluster.SUPERUSER, words.superuser, sockets, database)
    app_url = _url(cluster.APP, words.app, sockets, database)
    return Running(Embedded(owner_url, app_url, state, place.binaries.version), place, locks, user)


def stop(state: Path) -> bool:
    """Stops the server of `state`, whoever uses it, and says whether one ran. Raises EmbeddedError where it does not stop."""
    state = state.resolve()
    directory = control_directory(state)
    locks = Locks.within(directory)
    if not status(state).made:
        return False
    try:
        with exclusive(locks.start):
            return control.stop_server(find_place(state), locks)
    except OSError as error:
        raise _unusable(state, error) from error


def remove(state: Path) -> None:
    """Stops the server of `state` and removes its data and secrets, for good. Raises EmbeddedError where that fails."""
    stop(state)
    state = state.resolve()
    try:
        for directory in (pointed_home(state) or state / "postgres", control_directory(state)):
            if directory.exists():
                shutil.rmtree(directory)
    except OSError as error:
        raise _unusable(state, error) from error


def status(state: Path) -> Status:
    """How the server of `state` is, without starting, making or changing anything."""
    state = state.resolve()
    locks = Locks.within(control_directory(state))
    home = pointed_home(state) or state / "postgres"
    data = home / "data"
    try:
        made, running, in_use = data.exists(), is_held(locks.server), _in_use(locks)
    except OSError as error:
        raise _unusable(state, error) from error
    written = control.PidFile.of(data) if running else None
    return Status(
        made=made,
        running=running and written is not None and written.ready,
        in_use=in_use,
        home=home,
        log=home / "server.log",
        sockets=written.sockets if written else None,
        pid=written.pid if written else None,
    )


def _in_use(locks: Locks) -> bool:
    """Whether the server has users; who starts or stops at this moment counts as one."""
    if not locks.start.exists():
        return False
    lock = try_exclusive(locks.start)
    if lock is None:
        return True
    try:
        return is_held(locks.users, shared_too=True)
    finally:
        os.close(lock)


def _prepared(state: Path) -> Path:
    """The state directory by its full path, made if need be, with the closed directory for locks and secrets in it."""
    try:
        state.mkdir(parents=True, exist_ok=True)
        state = state.resolve()
        directory = control_directory(state)
        directory.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        raise _unusable(state, error) from error
    return state


def _hand_over(state: Path, directory: Path) -> None:
    """Gives what root made in someone else's state directory to that one, who could not start the server otherwise."""
    found = state.stat()
    if os.geteuid() == 0 and found.st_uid != 0:
        for path in (directory, *directory.iterdir()):
            os.chown(path, found.st_uid, found.st_gid, follow_symlinks=False)


def _unusable(state: Path, error: OSError) -> EmbeddedError:
    return EmbeddedError(f"the state directory {state} cannot be used ({error}): name another in DEEDBOX_STATE")


def _url(user: str, password: str, sockets: Path, database: str) -> str:
    """A libpq URL; the port is named so that PGPORT cannot change the socket's name."""
    return f"postgresql://{user}:{password}@/{database}?host={quote(os.fsencode(sockets), safe='')}&port={cluster.PORT}"
