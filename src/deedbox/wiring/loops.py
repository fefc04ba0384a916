"""The loops of a process: worker, dispatcher and sweep."""

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from deedbox import __version__, telemetry
from deedbox.dispatch.callbacks import Callbacks
from deedbox.dispatch.loop import Dispatcher
from deedbox.dispatch.schedule import Schedule
from deedbox.store.prune import Retention
from deedbox.sweep.notify import Notifier
from deedbox.sweep.prune import Pruning
from deedbox.sweep.service import Sweep
from deedbox.wiring.installation import Installation, Role

if TYPE_CHECKING:
    from deedbox.extend.connector import Connector


async def run_roles(installation: Installation, roles: Sequence[Role], stop: asyncio.Event) -> None:
    """Run the loops until `stop` is set; a loop that dies takes the process down with it, never silently."""
    settings = installation.settings
    loops: dict[Role, Any] = {}
    others: dict[str, Any] = {}
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
            calls=installation.calls,
        )
    if "dispatch" in roles:
        connectors: dict[str, Connector] = {**installation.app.connectors, **installation.voice.connectors}
        if installation.callback is not None:
            connectors[installation.callback.name] = installation.callback
        loops["dispatch"] = Dispatcher(
            installation.pool,
            installation.ids,
            connectors,
            environment_on=settings.actions_enabled,
            slots=settings.send_slots,
            lease_s=settings.send_lease_s,
            wake=installation.wakeup.event("deedbox_outbox"),
            told=installation.wakeup.listens,
            public_url=settings.public_url,
            breaker=settings.breaker,
        )
        others["look_ups"] = Schedule(installation.pool, installation.ids, installation.app.connectors, settings.look_ups)
        await installation.targets.keep_settings(settings.tenant, stop)
    if "dispatch" in roles and installation.callback is not None:
        wanted = {receiver.name: receiver.events for receiver in settings.callbacks}
        wake = installation.wakeup.event("deedbox_events")
        others["callbacks"] = Callbacks(installation.pool, installation.ids, wanted, wake=wake)
    if "sweep" in roles:
        keeps = {name: action.keep_s for name, action in installation.app.actions.items()}
        retention = Retention.in_days(settings.keep_days, settings.keep_records_days, keeps)
        pruning = Pruning(installation.pool, installation.ids, retention)
        notifier = Notifier(installation.pool, installation.ids, installation.voice.asking, installation.voice.telling)
        loops["sweep"] = Sweep(
            installation.pool, installation.ids, settings.lease, pruning, notifier, unknown_s=settings.alerts_unknown_s
        )
    async with asyncio.TaskGroup() as group:
        for role, loop in (*loops.items(), *others.items()):
            group.create_task(loop.run(stop), name=role)
    telemetry.log("wiring").info("stopped", roles=list(roles))
