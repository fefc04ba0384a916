"""Runs the server's programs: with a clean environment, and as the account that the server belongs to."""

import os
import pwd
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

# Nothing of the caller's environment goes in: PG* variables would change what the programs do, and a locale what they say.
_ENVIRONMENT = {"PATH": "/usr/local/bin:/usr/bin:/bin", "LC_ALL": "C", "TZ": "UTC"}
_OUTPUT_SHOWN = 2_000


class EmbeddedError(RuntimeError):
    """The embedded PostgreSQL cannot be made, started, reached or stopped; the text says why and what to do."""


@dataclass(frozen=True, slots=True)
class Account:
    """A system account that the server runs as, given only where that is not the caller's own."""

    name: str
    uid: int
    gid: int

    @classmethod
    def of_uid(cls, uid: int) -> Self | None:
        """The account with this number, or None where the system knows none (initdb insists on a known one)."""
        try:
            entry = pwd.getpwuid(uid)
        except KeyError:
            return None
        return cls(entry.pw_name, entry.pw_uid, entry.pw_gid)

    @classmethod
    def of_name(cls, name: str) -> Self | None:
        """The account with this name, or None where there is none or it is root under another name."""
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            return None
        return cls(entry.pw_name, entry.pw_uid, entry.pw_gid) if entry.pw_uid else None


@dataclass(frozen=True, slots=True)
class Ended:
    """How a program ended: its exit code, what it wrote, and both streams as one text for a message."""

    code: int
    output: str
    errors: str

    @property
    def said(self) -> str:
        """The end of what it said, for an error message."""
        return f"{self.output.strip()}\n{self.errors.strip()}".strip()[-_OUTPUT_SHOWN:]


def run(
    arguments: Sequence[str | Path],
    *,
    account: Account | None,
    stdin: str = "",
    extra: Mapping[str, str] | None = None,
    keep: Sequence[int] = (),
    seconds: float = 120.0,
) -> Ended:
    """Runs a program to its end, in `/`, in a session of its own, with umask 077.

    `account` is None for the caller's own; `extra` adds to the clean environment; `keep` are file descriptors the program
    inherits. A program that cannot be executed at all ends with code 126, as in a shell. Raises EmbeddedError after
    `seconds`, or where the system does not let this process become the account.
    """
    name = os.fspath(arguments[0])
    try:
        ended = subprocess.run(
            [os.fspath(argument) for argument in arguments],
            input=os.fsencode(stdin),
            capture_output=True,
            env={**_ENVIRONMENT, **(extra or {})},
            cwd="/",
            timeout=seconds,
            check=False,
            start_new_session=True,  # Ctrl-C at the terminal is for Deedbox, which then stops the server in order
            pass_fds=tuple(keep),
            umask=0o077,
            user=account.uid if account else None,
            group=account.gid if account else None,
            extra_groups=[] if account else None,
        )
    except subprocess.TimeoutExpired as error:
        message = f"{name} did not end within {seconds:.0f} s"
        raise EmbeddedError(message) from error
    except OSError as error:
        return Ended(126, "", f"{name}: {error.strerror}")
    except subprocess.SubprocessError as error:
        message = f"this process may not run programs as the account {account.name if account else '?'}: {error}"
        raise EmbeddedError(message) from error
    return Ended(ended.returncode, ended.stdout.decode(errors="replace"), ended.stderr.decode(errors="replace"))


def shell(script: str, *arguments: str | Path, account: Account | None, stdin: str = "", keep: Sequence[int] = ()) -> Ended:
    """Runs a fixed script of ours with `sh`; what varies comes in as `$1`, `$2` …, so that no path needs quoting."""
    return run(["/bin/sh", "-c", script, "sh", *arguments], account=account, stdin=stdin, keep=keep)


def write_as(path: Path, text: str, *, account: Account | None) -> None:
    """Writes a whole file, mode 0600, as the account.

    Root never writes into a directory of another account: that one could have put a link there. Raises EmbeddedError.
    """
    expect(shell('cat >"$1.part" && mv -f "$1.part" "$1"', path, account=account, stdin=text), f"writing {path}")


def expect(ended: Ended, what: str) -> Ended:
    """Returns `ended` if the program succeeded, and else raises EmbeddedError: `what` failed, and what was said."""
    if ended.code != 0:
        message = f"{what} failed with exit code {ended.code}: {ended.said}"
        raise EmbeddedError(message)
    return ended
