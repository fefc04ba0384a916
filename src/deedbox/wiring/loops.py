"""The loops of a process: worker, dispatcher and sweep."""

import asyncio
from collections.abc import Sequence
from typing import Any

from deedbox import __version__, telemetry
from deedbox.dispatch.loop import Dispatcher
from deedbox.dispatch.schedule import Schedule
from deedbox.store.prune import Retention
from deedbox.sweep.prune import Pruning
from deedbox.sweep.service import Sweep
from deedbox.wiring.installation import Installation, Role


async def run_roles(installation: Installation, roles: Sequence[Role], stop: asyncio.Event) -> None:
    """Run the loops until `stop` is set; a loop that dies takes the process down with it, never silently."""
    settings = installation.settings
    loops: dict[Role, Any] = {}
    beside: dict[str, Any] = {}
    if "worker" in roles:
        # Imported late, as in `_models`: a command that only asks must not wait for the model library.
        from deedbox.worker.loop import Worker, WorkerSettings  # noqa: PLC0415

        loops["worker"] = Worker(
            url=installation.database.direct_url,
            pool=installation.pool,
            ids=installation.ids,
            app=installation.app,
            lease=settings.lease,
            settings=WorkerSettings(
                name=installation.name,
                build=__version__,
                slots=settings.worker_slots,
                queues=settings.worker_queues,
                drain_s=settings.drain_s,
                prepare=settings.prepare_statements,
            ),
            wake=installation.wakeup.event("deedbox_queue"),
            came_through=installation.pulse.beat,
            reader=installation.reader,
            models=installation.models,
        )
    if "dispatch" in roles:
        loops["dispatch"] = Dispatcher(
            installation.pool,
            installation.ids,
            installation.app.connectors,
            environment_on=settings.actions_enabled,
            slots=settings.send_slots,
            lease_s=settings.send_lease_s,
            wake=installation.wakeup.event("deedbox_outbox"),
            told=installation.wakeup.listens,
            breaker=settings.breaker,
        )
        beside["look_ups"] = Schedule(installation.pool, installation.ids, installation.app.connectors, settings.look_ups)
        await installation.targets.take_settings(settings.tenant)
    if "sweep" in roles:
        keeps = {name: action.keep_s for name, action in installation.app.actions.items()}
        retention = Retention.in_days(settings.keep_days, settings.keep_records_days, keeps)
        pruning = Pruning(installation.pool, installation.ids, retention)
        loops["sweep"] = Sweep(installation.pool, installation.ids, settings.lease, pruning)
    async with asyncio.TaskGroup() as group:
        for role, loop in [*loops.items(), *beside.items()]:
            group.create_task(loop.run(stop), name=role)
    telemetry.log("wiring").info("stopped", roles=list(roles))
