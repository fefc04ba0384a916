"""Machines that can be cut off: network namespaces on one bridge, each with an address and a cable of its own.

Needs root and `ip` (Debian's iproute2). A cable that is cut swallows what is sent: nobody is told, as with a real one.
"""

import asyncio
import os
import subprocess
from collections.abc import AsyncGenerator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass

from tests.failover.programs import Machine, find


class NetworkError(RuntimeError):
    """A namespace, a bridge or a cable cannot be made or moved."""


def reason_for_no_network() -> str | None:
    """Why there can be no machines of our own, in one line; None where there can."""
    if os.geteuid() != 0:
        return "machines in network namespaces need root"
    if find("ip") is None or find("setpriv") is None:
        return "machines in network namespaces need the Debian packages iproute2 and util-linux"
    name = f"dbx{os.getpid()}t"
    made = subprocess.run(["ip", "netns", "add", name], check=False, capture_output=True, text=True)
    if made.returncode == 0:
        subprocess.run(["ip", "netns", "del", name], check=False)
        return None
    return f"network namespaces cannot be made here: {made.stderr.strip()}"


@dataclass(frozen=True, slots=True)
class Network:
    """The bridge, which this process is on as well, and the machines by name."""

    prefix: str
    hub: Machine
    machines: dict[str, Machine]
    subnet: str

    async def cut(self, name: str) -> None:
        """Cut a machine's cable."""
        await _ip("link", "set", self._cable(name), "down")

    async def heal(self, name: str) -> None:
        """Put it back."""
        await _ip("link", "set", self._cable(name), "up")

    def _cable(self, name: str) -> str:
        # An interface's name has fifteen characters at most.
        return f"{self.prefix}{list(self.machines).index(name)}"

    async def lay(self, name: str) -> None:
        """Make a machine and its cable."""
        machine, cable = self.machines[name], self._cable(name)
        space = machine.namespace or ""
        await _ip("netns", "add", space)
        await _ip("link", "add", cable, "type", "veth", "peer", "name", "eth0", "netns", space)
        await _ip("-n", space, "addr", "add", f"{machine.address}/24", "dev", "eth0")
        for device in ("eth0", "lo"):
            await _ip("-n", space, "link", "set", device, "up")
        await _ip("link", "set", cable, "master", f"{self.prefix}b", "up")

    async def remove(self) -> None:
        """Take everything away again, whatever of it is there."""
        for machine in self.machines.values():
            await _ip("netns", "del", machine.namespace or "", expect=False)
        await _ip("link", "del", f"{self.prefix}b", expect=False)


@asynccontextmanager
async def network(names: Iterable[str]) -> AsyncGenerator[Network]:
    """A bridge with a machine for each name, until the block ends. Raises NetworkError."""
    prefix = f"dbx{os.getpid()}"
    # A range that is for measurements of networks (RFC 2544) and leads nowhere.
    subnet = f"198.18.{os.getpid() % 254 + 1}"
    machines = {name: Machine(f"{subnet}.{10 + number}", f"{prefix}-{name}") for number, name in enumerate(names)}
    one = Network(prefix, Machine(f"{subnet}.1"), machines, f"{subnet}.0/24")
    try:
        await _ip("link", "add", f"{prefix}b", "type", "bridge")
        await _ip("addr", "add", f"{one.hub.address}/24", "dev", f"{prefix}b")
        await _ip("link", "set", f"{prefix}b", "up")
        for name in machines:
            await one.lay(name)
        yield one
    finally:
        await one.remove()


async def _ip(*arguments: str, expect: bool = True) -> None:
    process = await asyncio.create_subprocess_exec(
        "ip", *arguments, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    said, _ = await process.communicate()
    if expect and process.returncode != 0:
        raise NetworkError(f"ip {' '.join(arguments)}: {said.decode(errors='replace').strip()}")
