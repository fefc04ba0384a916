"""What one round measures: groups of cells, each with the product, what stands beside it, and every peer that is set up."""

import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from bench.cells import (
    accept,
    approve,
    bulk,
    drain,
    effects,
    http_accept,
    idle,
    mcp_start,
    memory,
    raw_accept,
    raw_drain,
    repaint,
    sent,
    start,
    stock,
)
from bench.database import Server
from bench.peers import cells as peer_cells
from bench.peers.catalogue import Peer
from bench.samples import Sample

One: TypeAlias = Callable[[Server], Awaitable[Sample | list[Sample]]]
Cell: TypeAlias = list[One]

GROUPS = (
    *("accept", "http", "drain", "bulk", "start", "full", "snapshot", "idle"),
    *("effects", "approve", "sent", "mcp", "repaint", "memory"),
)
ONCE = frozenset({"memory", "repaint"})
"""Groups that are measured in the first round alone: they take minutes, and hardly move."""


@dataclass(frozen=True, slots=True)
class Extent:
    """How much is measured: seconds of each rate, jobs of each drain and of the light load, jobs that lie there already.

    `kept` jobs run in one worker whose memory is watched from the first `early` on; `idle` are seconds.
    """

    seconds: float
    jobs: int
    paced: int
    stock: int
    effects: int
    kept: int
    early: int
    idle: float


WHOLE = Extent(seconds=3.0, jobs=10_000, paced=500, stock=1_000_000, effects=2_000, kept=200_000, early=10_000, idle=20.0)
QUICK = Extent(seconds=1.0, jobs=2_000, paced=100, stock=20_000, effects=300, kept=6_000, early=2_000, idle=5.0)


def cells(extent: Extent, only: Sequence[str], peers: Sequence[Peer]) -> list[tuple[str, Cell]]:
    """The cells of one round, each with its group; what a cell consists of is done in another order each time."""
    made: dict[str, list[Cell]] = {
        "accept": [_accepting(extent, peers, submitters) for submitters in (1, 8, 64)],
        "http": [_serving(extent, peers)],
        "drain": [_draining(extent, peers, processes) for processes in (1, 2)],
        "bulk": [_bulk(extent, peers)],
        "start": [_starting(extent, peers)],
        "full": [_full(extent)],
        "snapshot": [_snapshot(extent)],
        "idle": [[lambda server: idle.measure(server, extent.idle)]],
        "effects": [[lambda server: effects.measure(server, extent.effects)]],
        "approve": [[lambda server: approve.measure(server, extent.paced)]],
        "sent": [_sent(extent)],
        "mcp": [[lambda server: mcp_start.measure(server, extent.seconds)]],
        "repaint": [[lambda server: repaint.measure(server, 2)]],
        "memory": [[lambda server: memory.measure(server, extent.kept, extent.early)]],
    }
    chosen = [(group, cell) for group in GROUPS if group in only for cell in made[group]]
    for _, cell in chosen:
        random.shuffle(cell)
    return chosen


def _accepting(extent: Extent, peers: Sequence[Peer], submitters: int) -> Cell:
    own = [_with(measure, submitters, extent.seconds) for measure in (accept.measure, raw_accept.measure)]
    return own + [_with(peer_cells.accept, peer, submitters, extent.seconds) for peer in peers]


def _serving(extent: Extent, peers: Sequence[Peer]) -> Cell:
    return [_with(http_accept.measure, extent.seconds), *(_with(peer_cells.http, peer, extent.seconds) for peer in peers)]


def _draining(extent: Extent, peers: Sequence[Peer], processes: int) -> Cell:
    own = [_with(drain.measure, extent.jobs, processes)]
    if processes == 1:
        own.append(_with(raw_drain.measure, extent.jobs))
    return own + [_with(peer_cells.drain, peer, extent.jobs, processes) for peer in peers]


def _bulk(extent: Extent, peers: Sequence[Peer]) -> Cell:
    return [_with(bulk.measure, extent.jobs), *(_with(peer_cells.bulk, peer, extent.jobs) for peer in peers)]


def _starting(extent: Extent, peers: Sequence[Peer]) -> Cell:
    return [_with(start.measure, extent.paced), *(_with(peer_cells.start, peer, extent.paced) for peer in peers)]


def _full(extent: Extent) -> Cell:
    async def beside(kind: stock.Kind, server: Server) -> Sample:
        template = await stock.template(server, kind, extent.stock)
        return await drain.measure(server, extent.jobs, 1, cell=f"drain_{kind}", template=template)

    return [
        lambda server: drain.measure(server, extent.jobs, 1, cell="drain_empty"),
        lambda server: beside("finished", server),
        lambda server: beside("waiting", server),
    ]


def _snapshot(extent: Extent) -> Cell:
    return [
        lambda server: drain.measure(server, extent.jobs, 1, cell="drain_free"),
        lambda server: drain.measure(server, extent.jobs, 1, cell="drain_held", held=True),
    ]


def _sent(extent: Extent) -> Cell:
    async def sending(server: Server) -> Sample:
        template = await sent.template(server, extent.stock)
        return await effects.dispatch(server, extent.effects, cell="effects_sent", template=template)

    async def deciding(server: Server) -> Sample:
        template = await sent.template(server, extent.stock)
        return await approve.measure(server, extent.paced, cell="approve_sent", template=template)

    return [sending, deciding]


def _with(measure: Callable[..., Awaitable[Sample | list[Sample]]], *given: Any) -> One:
    return lambda server: measure(server, *given)
