"""The programs of the fail-over run, where they are, and as whom and at which ports they run."""

import os
import pwd
import shutil
import socket
from dataclasses import dataclass

from tools.system import POSTGRES_15, Program

HOST = "127.0.0.1"
_PURPOSE = "the fail-over run"
# Debian keeps servers where an ordinary account's PATH does not lead.
_PATH = os.pathsep.join((os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin"))


def find(name: str) -> str | None:
    """The path of a program."""
    return shutil.which(name, path=_PATH)


PROGRAMS = (
    POSTGRES_15,
    Program("patroni", _PURPOSE, lambda: find("patroni")),
    Program("etcd-server", _PURPOSE, lambda: find("etcd")),
    Program("haproxy", _PURPOSE, lambda: find("haproxy")),
)


def postgres_bin() -> str:
    """The directory with PostgreSQL's programs. Raises FileNotFoundError where there is none."""
    found = POSTGRES_15.find()
    if found is None:
        raise FileNotFoundError(POSTGRES_15.missing())
    return found


def reason_not_to_run() -> str | None:
    """Why the cluster cannot run here, in one line; None where it can."""
    absent = [program.package for program in PROGRAMS if program.find() is None]
    if absent:
        return f"fail-over needs the Debian packages {', '.join(absent)} (as root: apt install {' '.join(absent)})"
    if os.geteuid() == 0 and account() is None:
        return "fail-over needs the account postgres: PostgreSQL does not run as root"
    return None


def account() -> pwd.struct_passwd | None:
    """The account that the servers get where this process is root; None where they get the caller's, or there is none."""
    if os.geteuid() != 0:
        return None
    try:
        return pwd.getpwnam("postgres")
    except KeyError:
        return None


@dataclass(frozen=True, slots=True)
class Machine:
    """Where a program runs: an address, and the network namespace that has it; without one it is this machine itself."""

    address: str = HOST
    namespace: str | None = None

    def command(self, *arguments: str, owner: pwd.struct_passwd | None = None) -> list[str]:
        """The command that runs a program there, as `owner` where that is not the caller; its process number stays the same."""
        become: list[str] = []
        if owner is not None:
            become = ["setpriv", f"--reuid={owner.pw_uid}", f"--regid={owner.pw_gid}", "--clear-groups", "--"]
        enter = ["ip", "netns", "exec", self.namespace] if self.namespace else []
        return [*enter, *become, *arguments]


def free_ports(count: int) -> list[int]:
    """Ports that were free a moment ago, all different."""
    held = [socket.create_server((HOST, 0)) for _ in range(count)]
    try:
        return [one.getsockname()[1] for one in held]
    finally:
        for one in held:
            one.close()
