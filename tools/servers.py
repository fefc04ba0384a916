"""Run the tests on another server than the embedded one, or through a pooler, and leave nothing behind.

`python -m tools.servers 15 [--pgbouncer] [pytest's arguments]` makes a private cluster with Debian's PostgreSQL 15 in a
temporary directory; `embedded` in place of the number takes the embedded PostgreSQL, whose only use here is behind
`--pgbouncer`. Servers listen on a socket in a directory of mode 0700 and on no network. Started as root they run as another
account. A small shell holds each server and ends with this process, however that ends, be it by SIGKILL: it then stops the
server and removes the directory.
"""

import argparse
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from urllib.parse import quote

import psycopg
from psycopg import conninfo, sql

from deedbox import embedded
from deedbox.embedded.process import Account, expect, run, shell, write_as
from tests.database import memory
from tools import system

ROOT = Path(__file__).resolve().parent.parent
APP = "deedbox_app"
OWNER = "postgres"
_PORT = 5432
_POOLER_PORT = 6432
_START_S = 60.0
_LOOK_S = 0.05
# $1: the directory, $2: the signal that stops the server; the rest is its command line.
_HOLD = (
    'home=$1; stop=$2; shift 2; "$@" >"$home/log" 2>&1 & server=$!; '
    'read -r _; kill -s "$stop" "$server" 2>/dev/null; wait "$server"; rm -rf "$home"'
)
# A pooler in transaction mode drops what a client asks for when it connects (`options`), so it sets the same itself.
_CONNECT_QUERY = (
    "SET statement_timeout = 15000; SET lock_timeout = 5000; SET idle_in_transaction_session_timeout = 30000; "
    "SET timezone = ''UTC''"
)
_POOLER = """\
[databases]
* = host={host} port={port} connect_query='{query}'

[pgbouncer]
listen_addr =
listen_port = {own_port}
unix_socket_dir = {own}
auth_type = trust
auth_file = {own}/users
pool_mode = transaction
default_pool_size = 20
max_client_conn = 2000
ignore_startup_parameters = options
log_connections = 0
log_disconnections = 0
"""


class ServerError(RuntimeError):
    """A server for the tests cannot be made; the text says why and what to do."""


@dataclass(frozen=True, slots=True)
class Engine:
    """A server on which databases may be made: the URL of a superuser, and that of the application's role."""

    owner_url: str
    app_url: str


def _account() -> Account | None:
    """Who runs the servers: the caller, or another account where that is root. Raises ServerError where there is none."""
    if os.geteuid() != 0:
        return None
    account = Account.of_name("postgres") or Account.of_name("nobody")
    if account is None:
        raise ServerError("PostgreSQL does not run as root, and there is no account postgres or nobody: use another account")
    return account


def _home(prefix: str, account: Account | None) -> Path:
    """A new directory of mode 0700 that the account can reach and whose path is short enough for a socket."""
    bases = (memory() or "", tempfile.gettempdir(), "/tmp", "/var/tmp")  # noqa: S108 -- a fresh directory within
    for base in dict.fromkeys(filter(None, bases)):
        home = Path(tempfile.mkdtemp(prefix=f"deedbox-{prefix}-", dir=base))
        if account:
            os.chown(home, account.uid, account.gid)
        if len(os.fsencode(home)) < 80 and shell('cd "$1" && test -w .', home, account=account).code == 0:  # noqa: PLR2004
            return home
        home.rmdir()
    raise ServerError("found no temporary directory for a server: name another in TMPDIR")


@contextmanager
def _held(home: Path, stop: str, arguments: Sequence[str | Path], account: Account | None) -> Generator[None]:
    """Run a server while the block runs; at the end, or when this process is gone, stop it and remove `home`."""
    holder = subprocess.Popen(
        ["/bin/sh", "-c", _HOLD, "sh", home, stop, *arguments],
        stdin=subprocess.PIPE,
        cwd="/",
        env={"PATH": os.defpath, "LC_ALL": "C.UTF-8"},
        start_new_session=True,  # Ctrl-C is for the tests; the server stops after them
        user=account.uid if account else None,
        group=account.gid if account else None,
        extra_groups=[] if account else None,
    )
    try:
        yield
    finally:
        holder.communicate()
        shutil.rmtree(home, ignore_errors=True)


def _await(url: str, log: Path) -> None:
    """Return once the server answers. Raises ServerError, with the end of its log, when it does not."""
    deadline = time.monotonic() + _START_S
    while True:
        try:
            psycopg.connect(url).close()
        except psycopg.OperationalError as error:
            if time.monotonic() > deadline:
                said = log.read_text(encoding="utf-8", errors="replace")[-2000:] if log.exists() else ""
                raise ServerError(f"the server did not answer within {_START_S:.0f} s: {error}\n{said}") from error
            time.sleep(_LOOK_S)
        else:
            return


def _url(user: str, host: Path, port: int) -> str:
    return f"postgresql://{user}@/postgres?host={quote(os.fsencode(host), safe='')}&port={port}"


@contextmanager
def postgres(major: int) -> Generator[Engine]:
    """A fresh private cluster of the distribution's PostgreSQL, with `fsync` on as it comes; gone after the block.

    Raises ServerError where its programs are not there or it does not start.
    """
    programs = system.postgres(major)
    if programs is None:
        raise ServerError(system.postgres_program(major).missing())
    account = _account()
    home = _home(f"pg{major}", account)
    data = home / "data"
    server = [Path(programs) / "postgres", "-D", data, "-c", f"unix_socket_directories={home}", "-c", "listen_addresses="]
    try:
        make = [
            Path(programs) / "initdb",
            "-D",
            data,
            "-U",
            OWNER,
            "-E",
            "UTF8",
            "--locale=C.UTF-8",
            "--auth=trust",
            "--no-sync",
        ]
        expect(run(make, account=account), "initdb")
    except BaseException:
        shutil.rmtree(home, ignore_errors=True)
        raise
    with _held(home, "INT", [*server, "-c", f"port={_PORT}", "-c", "max_connections=200"], account):
        engine = Engine(_url(OWNER, home, _PORT), _url(APP, home, _PORT))
        _await(engine.owner_url, home / "log")
        with psycopg.connect(engine.owner_url, autocommit=True) as connection:
            connection.execute(sql.SQL("CREATE ROLE {} LOGIN").format(sql.Identifier(APP)))
        yield engine


@contextmanager
def embedded_engine() -> Generator[Engine]:
    """The embedded PostgreSQL on a state directory of its own; gone after the block. Raises EmbeddedError."""
    state = Path(tempfile.mkdtemp(prefix="deedbox-embedded-"))
    try:
        with embedded.start(state) as running:
            yield Engine(running.info.owner_url, running.info.app_url)
    finally:
        embedded.remove(state)
        shutil.rmtree(state, ignore_errors=True)


@contextmanager
def pooled(engine: Engine) -> Generator[str]:
    """The application's URL through a pgbouncer in transaction mode in front of an engine; gone after the block.

    Any database name of the engine works through it. Raises ServerError where pgbouncer is not there or does not start.
    """
    program = system.pgbouncer()
    if program is None:
        raise ServerError(system.PGBOUNCER.missing())
    behind = conninfo.conninfo_to_dict(engine.app_url)
    sockets = Path(str(behind["host"]))
    # The engine's socket lies in a directory that only its account may enter.
    account = Account.of_uid(sockets.stat().st_uid) if os.geteuid() == 0 else None
    home = _home("pgbouncer", account)
    try:
        text = _POOLER.format(host=sockets, port=behind["port"], query=_CONNECT_QUERY, own=home, own_port=_POOLER_PORT)
        write_as(home / "pgbouncer.ini", text, account=account)
        write_as(home / "users", f'"{behind["user"]}" "{behind.get("password") or ""}"\n', account=account)
    except BaseException:
        shutil.rmtree(home, ignore_errors=True)
        raise
    with _held(home, "TERM", [program, home / "pgbouncer.ini"], account):
        url = _url(APP, home, _POOLER_PORT)
        _await(url, home / "log")
        yield url


def _pytest(arguments: Sequence[str], environment: dict[str, str]) -> int:
    """Run pytest; signals to stop are its own to answer, and this process waits for it."""
    running: list[subprocess.Popen[bytes]] = []

    def forward(number: int, _frame: FrameType | None) -> None:
        if number == signal.SIGTERM:
            for process in running:
                process.send_signal(signal.SIGINT)

    # Before pytest starts: a shell may have told this process to ignore them, and pytest must not inherit that.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, forward)
    running.append(subprocess.Popen([sys.executable, "-m", "pytest", *arguments], cwd=ROOT, env=os.environ | environment))
    return running[0].wait()


def main() -> int:
    """Run the tests; the exit code is pytest's, or 1 with one line where there is no server to run them on."""
    parser = argparse.ArgumentParser(prog="python -m tools.servers", description="Run the tests on another server.")
    parser.add_argument("engine", help="`embedded`, or the major version of one of the distribution's PostgreSQL servers")
    parser.add_argument("--pgbouncer", action="store_true", help="put a pgbouncer in transaction mode in front of it")
    given, arguments = parser.parse_known_args()
    major = int(given.engine) if given.engine.isdecimal() else None
    if major is None and given.engine != "embedded":
        parser.error(f"{given.engine}: name `embedded` or a number, such as 15")
    needed = [*([system.postgres_program(major)] if major else []), *([system.PGBOUNCER] if given.pgbouncer else [])]
    for program in system.provide(needed):
        print(f"cannot run: {program.package} is not installed (as root: apt install {program.package})", file=sys.stderr)
        return 1
    with ExitStack() as stack:
        engine = stack.enter_context(postgres(major) if major else embedded_engine())
        environment = {"DEEDBOX_TEST_URL": engine.owner_url, "DEEDBOX_TEST_APP_URL": engine.app_url}
        if given.pgbouncer:
            environment["DEEDBOX_TEST_POOLER_URL"] = stack.enter_context(pooled(engine))
        return _pytest(arguments, environment)


if __name__ == "__main__":
    try:
        raise SystemExit(main())
    except (ServerError, embedded.EmbeddedError) as error:
        raise SystemExit(str(error)) from error
