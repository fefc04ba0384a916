"""One whole run: cluster, house, load, kills, and what the checker found."""

import asyncio
import time
from contextlib import AsyncExitStack
from dataclasses import dataclass, field

import httpx2
import psycopg

from tests.failover.checker import Found, check, waiting
from tests.failover.cluster import NODES, Cluster, cluster
from tests.failover.house import Ground, Size, house
from tests.failover.load import Load
from tests.failover.network import Network, network
from tests.failover.programs import HOST
from tests.failover.watch import Outage, Watch, judge
from tests.servers.http_provider import HttpProvider

KILLS = ("machine", "postgres")
CUTS = ("cut-leader", "cut-api", "cut-worker", "cut-dispatch")
LEADS = (*KILLS, "cut-leader")
CUT_S = 13.0
"""How long a cable stays cut, in seconds: longer than any lease of the run."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What to do: `modes` are the faults in their order, `calm_s` the seconds of load before each and after the last.

    `machine` kills a leader's PostgreSQL and Patroni together, as when the machine dies, and brings the node back as a replica;
    `postgres` kills its PostgreSQL alone: its Patroni lets go of the lead at once and brings it back. The cuts need `machines`:
    each node and each process of Deedbox is then on a machine of its own, and one cable is cut and put back.
    """

    modes: tuple[str, ...] = ("machine", "postgres", "machine", "machine")
    per_s: float = 15.0
    calm_s: float = 5.0
    size: Size = field(default_factory=lambda: Size(2, 2, 2))
    machines: bool = False


@dataclass(slots=True)
class Report:
    """What happened; the run passed where `faults` is empty."""

    accepted: int
    answers: dict[str, int]
    outages: list[Outage]
    found: Found
    reconciled: int
    seconds: float
    faults: list[str]

    def lines(self) -> list[str]:
        """The report for people."""
        told = [
            f"faults {len(self.outages)}, jobs {self.found.jobs}, 202s kept {self.accepted}, {self.seconds:.0f} s in all",
            f"ends {dict(self.found.ends)}, attempts taken over {self.found.rescued}",
            f"effects {dict(self.found.effects)}, performed {self.found.performed}, looked up by a person {self.reconciled}",
            f"answers {dict(sorted(self.answers.items()))}",
        ]
        told += [f"{one.node} ({one.mode})" for one in self.outages if not one.leads]
        told += [
            f"{one.node} ({one.mode}): no writes for {one.leaderless_s:.1f} s, ready {one.ready_after_s:.1f} s later; meanwhile"
            f" {one.said_not_ready} times not ready, {one.said_ready} times ready,"
            f" the slowest answer after {one.slowest_s:.1f} s"
            for one in self.outages
            if one.leads
        ]
        told += [f"FAULT {fault}" for fault in self.faults[:40]]
        return [*told, "nothing lost, nothing twice" if not self.faults else f"{len(self.faults)} faults"]


async def run(plan: Plan, *, keep: bool = False) -> Report:
    """Do what the plan says. Raises ClusterError where the cluster itself does not come up or come back."""
    began = time.monotonic()
    async with AsyncExitStack() as stack:
        net = await stack.enter_async_context(network((*NODES, *plan.size.names()))) if plan.machines else None
        provider = HttpProvider(honours_keys=False, host=net.hub.address if net else HOST)
        await stack.enter_async_context(provider.running())
        servers = await stack.enter_async_context(cluster(net=net, keep=keep))
        machines = net.machines if net else None
        processes = await stack.enter_async_context(house(_ground(servers, provider), plan.size, machines))
        limits = httpx2.Limits(max_connections=200, max_keepalive_connections=50)
        client = await stack.enter_async_context(httpx2.AsyncClient(trust_env=False, limits=limits))
        load, watch = Load(processes, client), Watch(servers, processes)
        await load.log_in()
        stop_load, stop = asyncio.Event(), asyncio.Event()
        async with asyncio.TaskGroup() as group:
            group.create_task(watch.run(stop))
            group.create_task(load.decide(stop))
            submitting = group.create_task(load.submit(stop_load, per_s=plan.per_s))
            outages = await _break(servers, net, provider, plan)
            stop_load.set()
            await submitting
            faults = await _until_over(servers.url("deedbox_owner"), within=120)
            stop.set()
        await load.replay()
        performed = [str(note["key"]) for note in provider.performed]
        found = await check(servers.url("deedbox_owner"), load.calls, load.decided, performed)
        faults += [*load.faults, *found.faults, *processes.ended(), *_judge(watch, outages)]
        lost = await watch.lost_writes()
        if lost:
            faults.append(f"the cluster lost {lost} writes of the probe")
        accepted = sum(call.job_id is not None for call in load.calls)
        return Report(accepted, dict(load.answers), outages, found, load.reconciled, time.monotonic() - began, faults)


def _ground(servers: Cluster, provider: HttpProvider) -> Ground:
    target = {"name": "notes", "base_url": provider.url, "capability": "searchable", "look_up": "/notes/{key}"}
    return Ground(servers.url("deedbox_owner"), servers.url("deedbox_app"), servers.directory, [target])


async def _break(servers: Cluster, net: Network | None, provider: HttpProvider, plan: Plan) -> list[Outage]:
    """Do one fault after the other, each once all nodes are there again."""
    outages: list[Outage] = []
    for mode in plan.modes:
        await asyncio.sleep(plan.calm_s)
        # Two answers are lost as well, so that there is something that nobody knows.
        provider.faults.extend(("accept_then_reset", "accept_then_cut"))
        leader = await servers.until_leader(within=30)
        hit = leader.name if mode in LEADS else mode.removeprefix("cut-") + "0"
        outages.append(Outage(hit, mode, time.monotonic(), leads=mode in LEADS))
        if mode in KILLS:
            await servers.kill(leader, patroni=mode == "machine")
            # Not before: with the server half dead, old sessions still work and new ones do not.
            outages[-1].killed_at = time.monotonic()
            await servers.until_leader(within=60, other_than=leader)
        elif net is not None:
            await net.cut(hit)
            await asyncio.sleep(CUT_S)
            if mode in LEADS:
                await servers.until_leader(within=60, other_than=leader)
            await net.heal(hit)
        if mode == "machine":
            await servers.start_node(leader)
        await servers.until_whole(within=120)
    await asyncio.sleep(plan.calm_s)
    return outages


async def _until_over(url: str, *, within: float) -> list[str]:
    """Wait until no job is under way; returns a fault for what still is after `within` seconds."""
    left: dict[str, int] = {}
    try:
        async with asyncio.timeout(within):
            while True:
                try:
                    left = await waiting(url)
                except psycopg.OperationalError:
                    left = {"cannot be asked": 1}
                if not left:
                    return []
                await asyncio.sleep(0.2)
    except TimeoutError:
        return [f"still under way after {within} s: {left}"]


def _judge(watch: Watch, outages: list[Outage]) -> list[str]:
    faults: list[str] = []
    for one in outages:
        if not one.leads:
            continue
        try:
            judge(one, watch.writes, watch.ready)
        except LookupError as error:
            faults.append(str(error))
        if one.said_ready:
            faults.append(f"ready was said {one.said_ready} times while {one.node} was dead and no other led")
        if one.mode != "postgres" and not one.said_not_ready:
            faults.append(f"not ready was never said while {one.node} was dead")
    return faults
