"""Makes the cluster: its files, its settings, its two roles, and the databases in it."""

import os
import re
import secrets
import shutil
from dataclasses import dataclass
from pathlib import Path

from deedbox.embedded.place import Place
from deedbox.embedded.process import EmbeddedError, expect, run, shell, write_as

SUPERUSER = "postgres"
OWNER = "deedbox_owner"
APP = "deedbox_app"
PORT = 5432  # no port is opened; it is part of the socket's name

# Names that need no quoting anywhere.
_DATABASE = re.compile(r"[a-z_][a-z0-9_]{0,62}")

_SETTINGS = """\
# Written by Deedbox at each start. Settings of your own belong into postgresql.conf, after the line that includes this file.
listen_addresses = ''
port = {port}
unix_socket_directories = '"{sockets}"'
unix_socket_permissions = 0700
max_connections = 200
shared_buffers = 128MB
fsync = on
synchronous_commit = on
full_page_writes = on
wal_level = replica
jit = off
autovacuum = on
autovacuum_naptime = 20s
timezone = 'UTC'
log_timezone = 'UTC'
log_line_prefix = '%m [%p] %q%u@%d '
# A row's values and a statement's text may hold what people wrote; the log is no place for them.
log_error_verbosity = terse
log_min_error_statement = panic
"""

# In single-user mode a statement is a line.
_ROLES = """\
CREATE ROLE {owner} NOLOGIN NOSUPERUSER NOCREATEDB NOCREATEROLE
CREATE ROLE {app} LOGIN NOSUPERUSER NOCREATEDB NOCREATEROLE PASSWORD '{password}'
"""

_ACCESS = """\
# Sockets only, and nobody without a password.
local all all scram-sha-256
"""

_CREATE_DATABASE = r"""
SELECT format('CREATE DATABASE %I OWNER deedbox_owner', :'name')
 WHERE NOT EXISTS (SELECT FROM pg_database WHERE datname = :'name') \gexec
"""


@dataclass(frozen=True, slots=True, repr=False)
class Passwords:
    """The passwords of the superuser and of `deedbox_app`: hexadecimal digits, 256 random bits each."""

    superuser: str
    app: str


def check_database_name(name: str) -> None:
    """Raises ValueError unless `name` is one that needs no quoting: lower-case letters, digits, `_`, at most 63."""
    if not _DATABASE.fullmatch(name):
        message = f"{name!r} is no database name Deedbox makes: use lower-case letters, digits and _, at most 63"
        raise ValueError(message)


def passwords(control: Path, place: Place) -> Passwords:
    """Reads the passwords from their files (mode 0600), made at the first call.

    Raises EmbeddedError where there is a cluster but a password file has gone.
    """
    found: list[str] = []
    for name in ("superuser.secret", "app.secret"):
        path = control / name
        try:
            found.append(path.read_text(encoding="ascii").strip())
        except FileNotFoundError as error:
            if place.data.exists():
                message = f"{path} has gone, and with it the way into {place.data}: bring the file back"
                raise EmbeddedError(message) from error
            part = path.with_suffix(".part")
            part.unlink(missing_ok=True)
            secret = secrets.token_hex(32)
            with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="ascii") as file:
                file.write(secret)
                file.flush()
                os.fsync(file.fileno())
            part.rename(path)
            found.append(secret)
    return Passwords(*found)


def make_cluster(place: Place, words: Passwords) -> None:
    """Makes the cluster unless it is there; one that was killed half-way never stands in its place.

    Raises EmbeddedError with what initdb said, or where the files are those of another major version.
    """
    for leftover in place.home.glob("init-*"):
        shutil.rmtree(leftover, ignore_errors=True)
    if place.data.exists():
        _check_version(place)
        return
    account = place.account
    part = place.home / f"init-{secrets.token_hex(8)}"
    data, secret = part / "data", part / "secret"
    expect(shell('mkdir "$1"', part, account=account), f"making {part}")
    write_as(secret, words.superuser, account=account)
    arguments = ["-D", data, "-U", SUPERUSER, "-E", "UTF8", "--locale=C", "--auth=scram-sha-256", "--pwfile", secret]
    expect(run([place.program("initdb"), *arguments, "--no-instructions"], account=account), "initdb")
    # The roles are made before there is a socket, and before the cluster stands in its place: it is whole or not there.
    single = ["--single", "-D", data, "-c", "exit_on_error=on", "-c", "log_min_error_statement=panic", "postgres"]
    roles = _ROLES.format(owner=OWNER, app=APP, password=words.app)
    expect(run([place.program("postgres"), *single], account=account, stdin=roles), "making the roles")
    write_as(data / "pg_hba.conf", _ACCESS, account=account)
    expect(shell("""echo "include 'deedbox.conf'" >>"$1" """, data / "postgresql.conf", account=account), "the settings")
    for changed in (data / "pg_hba.conf", data / "postgresql.conf", data):
        _sync(changed)
    expect(shell('mv "$1" "$2" && rm -r "$3"', data, place.data, part, account=account), f"putting {place.data} in place")
    _sync(place.home)


def write_settings(place: Place, sockets: Path) -> None:
    """Writes the settings of the next start: the socket's directory may have changed with the path of the checkout."""
    text = _SETTINGS.format(port=PORT, sockets=sockets)
    write_as(place.data / "deedbox.conf", text, account=place.account)


def make_database(place: Place, words: Passwords, sockets: Path, name: str) -> None:
    """Makes the database, owned by `deedbox_owner`, unless it is there. Raises EmbeddedError with what the server said."""
    arguments = ["-X", "-q", "-w", "-v", "ON_ERROR_STOP=1", "-v", f"name={name}"]
    address = ["-h", sockets, "-p", str(PORT), "-U", SUPERUSER, "-d", "postgres"]
    secret = {"PGPASSWORD": words.superuser}
    expect(
        run([place.program("psql"), *arguments, *address], account=None, stdin=_CREATE_DATABASE, extra=secret),
        f"making the database {name}",
    )


def _sync(path: Path) -> None:
    """Brings a file or a directory to the disk; initdb has done so with the rest."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _check_version(place: Place) -> None:
    made_by = (place.data / "PG_VERSION").read_text(encoding="ascii").strip()
    if place.binaries.version.partition(".")[0] != made_by:
        message = (
            f"{place.data} was made by PostgreSQL {made_by}, and the installed programs are {place.binaries.version}: install "
            f"the version of Deedbox that made it, dump it there and load it here, or name another directory in DEEDBOX_STATE"
        )
        raise EmbeddedError(message)
