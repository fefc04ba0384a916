"""A PostgreSQL cluster under Patroni on loopback: etcd, three nodes and HAProxy, from the templates in `deploy/patroni`.

Every program runs as an account that is not root, in a session of its own, below one temporary directory. Only processes that
were started here are ever killed, by their numbers.
"""

import asyncio
import os
import pwd
import secrets
import shutil
import signal
import tempfile
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path
from string import Template

import httpx2
import psycopg
from psycopg import sql

from tests.failover.network import Network
from tests.failover.programs import Machine, account, find, free_ports, postgres_bin

TEMPLATES = Path(__file__).resolve().parents[2] / "deploy" / "patroni"
NODES = ("pg0", "pg1", "pg2")
# Shorter than in production, so that a run takes minutes; the rule loop_wait + 2 * retry_timeout <= ttl holds.
TIMES = {"TTL_S": "10", "LOOP_WAIT_S": "1", "RETRY_TIMEOUT_S": "3", "PRIMARY_START_TIMEOUT_S": "0"}


class ClusterError(RuntimeError):
    """The cluster does not come up, or a node does not come back."""


@dataclass(slots=True)
class Node:
    """One PostgreSQL node and the Patroni that minds it."""

    name: str
    machine: Machine
    port: int
    rest_port: int
    directory: Path
    process: asyncio.subprocess.Process | None = None

    @property
    def rest(self) -> str:
        """Where its Patroni answers."""
        return f"http://{self.machine.address}:{self.rest_port}"

    def postmaster(self) -> int | None:
        """The process number of its PostgreSQL, if one wrote it down."""
        try:
            return int((self.directory / "data" / "postmaster.pid").read_text().split()[0])
        except (OSError, ValueError, IndexError):
            return None


@dataclass(frozen=True, slots=True)
class Followers:
    """Names of nodes: who gets the leader's log, for whom its commits wait, and whom Patroni would promote."""

    streaming: set[str]
    waited_for: set[str]
    promotable: set[str]


@dataclass(slots=True)
class Cluster:
    """A running cluster."""

    directory: Path
    nodes: list[Node]
    hub: Machine
    network: str
    port: int
    etcd_ports: tuple[int, int]
    passwords: dict[str, str]
    client: httpx2.AsyncClient
    account: pwd.struct_passwd | None
    others: list[asyncio.subprocess.Process] = field(default_factory=list[asyncio.subprocess.Process])

    def url(self, user: str, *, database: str = "deedbox") -> str:
        """A libpq URL through HAProxy for `postgres`, `deedbox_owner` or `deedbox_app`."""
        return f"postgresql://{user}:{self.passwords[user]}@{self.hub.address}:{self.port}/{database}"

    async def start(self) -> None:
        """Start everything and wait until there is a leader, a synchronous standby and the roles. Raises ClusterError."""
        self._own(self.directory)
        etcd = self._render("etcd.yml", self.directory / "etcd.yml", self._etcd_values())
        self.others.append(await self._spawn(self.hub, "etcd", "etcd", "--config-file", str(etcd)))
        self.others.append(await self._spawn(self.hub, "haproxy", "haproxy", "-db", "-f", str(self._haproxy())))
        # One first: the others copy it, so that all three are there soonest.
        await self.start_node(self.nodes[0])
        await self.until_leader(within=90)
        await asyncio.gather(*(self.start_node(node) for node in self.nodes[1:]))
        await self.until_whole(within=120)
        await self._roles()

    async def start_node(self, node: Node) -> None:
        """Start a node's Patroni, which starts or rejoins its PostgreSQL."""
        node.directory.mkdir(exist_ok=True)
        self._own(node.directory)
        config = self._render("patroni.yml", node.directory / "patroni.yml", self._node_values(node))
        node.process = await self._spawn(node.machine, node.name, "patroni", str(config))

    async def leader(self) -> Node | None:
        """The node whose Patroni holds the leader's lock and whose PostgreSQL takes writes; None while there is none."""
        answers = await asyncio.gather(*(self._status(node, "primary") for node in self.nodes))
        return next((node for node, status in zip(self.nodes, answers, strict=True) if status == HTTPStatus.OK), None)

    async def until_leader(self, *, within: float, other_than: Node | None = None) -> Node:
        """Wait for a leader, another one than `other_than` where that is given. Raises ClusterError after `within` seconds."""
        with suppress(TimeoutError):
            async with asyncio.timeout(within):
                while True:
                    found = await self.leader()
                    if found is not None and found is not other_than:
                        return found
                    await asyncio.sleep(0.1)
        raise ClusterError(f"no leader within {within} s; logs in {self.directory}")

    async def until_whole(self, *, within: float) -> None:
        """Wait until the leader sends to every other node, and Patroni would promote the one that it waits for.

        A leader that is killed earlier has nobody to follow it, which is right and no test. Raises ClusterError.
        """
        seen: Followers | None = None
        with suppress(TimeoutError):
            async with asyncio.timeout(within):
                while True:
                    seen = await self._followers()
                    if seen is not None and len(seen.streaming) == len(self.nodes) - 1 and seen.waited_for & seen.promotable:
                        return
                    await asyncio.sleep(0.2)
        raise ClusterError(f"the cluster is not whole within {within} s ({seen}); logs in {self.directory}")

    async def kill(self, node: Node, *, patroni: bool = True) -> None:
        """SIGKILL the node's PostgreSQL with all its children, and before it its Patroni unless that is to live on."""
        if patroni and node.process is not None:
            os.kill(node.process.pid, signal.SIGKILL)
        postmaster = node.postmaster()
        if postmaster is not None:
            # Frozen first, so that no child is made while its children are being counted.
            for pid in (postmaster, *_stopped_with_children(postmaster)):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        if patroni and node.process is not None:
            await node.process.wait()
            node.process = None

    async def close(self) -> None:
        """Stop everything: the nodes at once, for nothing in them is wanted any more."""
        for node in self.nodes:
            await self.kill(node)
        for process in self.others:
            if process.returncode is None:
                process.kill()
            await process.wait()

    async def _status(self, node: Node, path: str) -> int:
        try:
            return (await self.client.get(f"{node.rest}/{path}")).status_code
        except httpx2.HTTPError:
            return 0

    async def _followers(self) -> "Followers | None":
        """Who follows, as the leader's PostgreSQL and its Patroni say at this moment; None while either cannot be asked."""
        leader = await self.leader()
        if leader is None:
            return None
        try:
            members = (await self.client.get(f"{leader.rest}/cluster")).json()["members"]
            async with await psycopg.AsyncConnection.connect(
                self.url("postgres", database="postgres"), autocommit=True, connect_timeout=2
            ) as admin:
                cursor = await admin.execute("SELECT application_name, state, sync_state FROM pg_stat_replication")
                rows = await cursor.fetchall()
        except (httpx2.HTTPError, psycopg.Error, LookupError):
            return None
        return Followers(
            {name for name, state, _ in rows if state == "streaming"},
            {name for name, state, waited in rows if state == "streaming" and waited == "sync"},
            {member["name"] for member in members if member["role"] == "sync_standby"},
        )

    async def _roles(self) -> None:
        """What `deploy/patroni/roles.sql` makes, with the passwords of this run."""
        lines = [line for line in (TEMPLATES / "roles.sql").read_text().splitlines() if not line.startswith("--")]
        text = "\n".join(lines)
        for name, user in (("owner_password", "deedbox_owner"), ("app_password", "deedbox_app")):
            text = text.replace(f":'{name}'", sql.Literal(self.passwords[user]).as_string())
        async with await psycopg.AsyncConnection.connect(self.url("postgres", database="postgres"), autocommit=True) as admin:
            for statement in filter(None, (part.strip() for part in text.split(";"))):
                await admin.execute(statement.encode())

    def _render(self, template: str, target: Path, values: Mapping[str, str]) -> Path:
        target.write_text(Template((TEMPLATES / template).read_text()).substitute(values))
        target.chmod(0o600)
        self._own(target)
        return target

    def _own(self, path: Path) -> None:
        if self.account is not None:
            os.chown(path, self.account.pw_uid, self.account.pw_gid)

    def _etcd_values(self) -> dict[str, str]:
        client, peer = self.etcd_ports
        return {
            "SCOPE": "deedbox",
            "ETCD_NAME": "etcd1",
            "ETCD_DATA_DIR": str(self.directory / "etcd"),
            "ETCD_HOST": self.hub.address,
            "ETCD_CLIENT_PORT": str(client),
            "ETCD_PEER_PORT": str(peer),
            "ETCD_CLUSTER": f"etcd1=http://{self.hub.address}:{peer}",
        }

    def _haproxy(self) -> Path:
        values = {"HAPROXY_HOST": self.hub.address, "HAPROXY_PORT": str(self.port)}
        for number, node in enumerate(self.nodes, 1):
            values |= {
                f"NODE{number}_NAME": node.name,
                f"NODE{number}_HOST": node.machine.address,
                f"NODE{number}_PORT": str(node.port),
                f"NODE{number}_REST_PORT": str(node.rest_port),
            }
        return self._render("haproxy.cfg", self.directory / "haproxy.cfg", values)

    def _node_values(self, node: Node) -> dict[str, str]:
        return TIMES | {
            "SCOPE": "deedbox",
            "NODE_NAME": node.name,
            "NODE_HOST": node.machine.address,
            "NODE_PORT": str(node.port),
            "NODE_REST_PORT": str(node.rest_port),
            "ETCD_HOSTS": f"{self.hub.address}:{self.etcd_ports[0]}",
            "DATA_DIR": str(node.directory / "data"),
            "BIN_DIR": postgres_bin(),
            "PGPASS_FILE": str(node.directory / "pgpass"),
            "SOCKET_DIR": str(node.directory),
            "SUPERUSER_PASSWORD": self.passwords["postgres"],
            "REPLICATION_PASSWORD": self.passwords["replicator"],
            "REWIND_PASSWORD": self.passwords["rewinder"],
            "CLIENT_NETWORK": self.network,
            "WATCHDOG_MODE": "off",
        }

    async def _spawn(self, machine: Machine, log: str, name: str, *arguments: str) -> asyncio.subprocess.Process:
        """Start a program that writes into `<log>.log`, without the caller's environment, as the account."""
        with (self.directory / f"{log}.log").open("ab") as out:
            return await asyncio.create_subprocess_exec(
                *machine.command(find(name) or name, *arguments, owner=self.account),
                env={"PATH": "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin", "LC_ALL": "C.UTF-8", "TZ": "UTC"},
                cwd=self.directory,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                start_new_session=True,
            )


def _stopped_with_children(postmaster: int) -> list[int]:
    """Freeze a process and return its children."""
    with suppress(ProcessLookupError):
        os.kill(postmaster, signal.SIGSTOP)
    found: list[int] = []
    for entry in Path("/proc").iterdir():
        with suppress(OSError, IndexError, ValueError):
            # The fields after the name in brackets, which may hold blanks itself: state, parent.
            if int((entry / "stat").read_text().rpartition(")")[2].split()[1]) == postmaster:
                found.append(int(entry.name))
    return found


@asynccontextmanager
async def cluster(*, net: Network | None = None, keep: bool = False) -> AsyncGenerator[Cluster]:
    """A whole cluster until the block ends, on loopback, or on the machines `NODES` of a network.

    Its directory is kept where `keep` says so or the block raised.
    """
    directory = Path(tempfile.mkdtemp(prefix="deedbox-failover-"))
    ports = free_ports(9)
    nodes = [
        Node(name, net.machines[name] if net else Machine(), ports[2 * number], ports[2 * number + 1], directory / name)
        for number, name in enumerate(NODES)
    ]
    hub = net.hub if net else Machine()
    names = ("postgres", "replicator", "rewinder", "deedbox_owner", "deedbox_app")
    passwords = {name: secrets.token_hex(16) for name in names}
    async with httpx2.AsyncClient(trust_env=False, timeout=2) as client:
        one = Cluster(
            directory=directory,
            nodes=nodes,
            hub=hub,
            network=net.subnet if net else f"{hub.address}/32",
            port=ports[6],
            etcd_ports=(ports[7], ports[8]),
            passwords=passwords,
            client=client,
            account=account(),
        )
        try:
            await one.start()
            yield one
        except BaseException:
            keep = True
            raise
        finally:
            await one.close()
            if not keep:
                shutil.rmtree(directory, ignore_errors=True)
