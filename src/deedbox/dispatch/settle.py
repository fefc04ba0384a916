"""Settling many sendings at once: receipts share a transaction, the ends of their jobs a second one.

Only the ordinary end goes this way: a receipt of the sender that holds the fence. Every other end, and every receipt whose
shared transaction failed or gave no answer, is settled alone under its effect's lock, which tells what was kept before.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from uuid import UUID

from deedbox.dispatch import send
from deedbox.dispatch.watch import Watch
from deedbox.extend.connector import Outcome, Receipt
from deedbox.model.backoff import Retry
from deedbox.model.values import short_message, storable_text
from deedbox.store import delivery
from deedbox.store.batch import Gatherer
from deedbox.store.delivery import Delivered
from deedbox.store.ending import finish_job
from deedbox.store.ids import IdSource
from deedbox.store.outbox import Leased, Move
from deedbox.store.pool import Pool
from deedbox.store.tell import Teller
from deedbox.store.transaction import autocommit, transaction
from deedbox.telemetry import log

MOST = 100
"""Receipts, or ends of jobs, in one transaction."""

_log = log("dispatch")


class Settler:
    """Keeps what came of sendings. `put` returns once it is committed and the job has ended, if it was the last of it."""

    def __init__(
        self,
        pool: Pool,
        ids: IdSource,
        retry: Retry,
        *,
        follows: Callable[[], None],
        retries: Mapping[str, Retry] | None = None,
        watch: Watch | None = None,
    ) -> None:
        """`retry` says when what was not accepted is sent again, and `retries` for connectors that have a pace of their own.

        `follows` is called where an effect may have waited; `watch` keeps what the ends say of targets.
        """
        self._retries = dict(retries or {})
        self._pool = pool
        self._ids = ids
        self._retry = retry
        self._watch = watch or Watch({})
        self._follows = follows
        self._teller = Teller(pool)
        self._receipts = Gatherer(self._deliver, self._deliver_one, most=MOST)
        self._ends = Gatherer(self._finish, self._finish_one, most=MOST)

    async def put(self, leased: Leased, outcome: Outcome, *, receipt_id: UUID, alone: bool) -> Move | None:
        """Keep what came of a sending; returns the move that was made, None where there was nothing to add.

        Raises what the database raises, after which it is not known what was kept: call again with the same `receipt_id` and
        `alone`.
        """
        name: Move | None = None
        if not alone and isinstance(outcome, Receipt) and leased.kind == "act":
            name = await self._receipts.put(self._row(leased, outcome, receipt_id))
        if name is None:
            retry = self._retries.get(leased.connector, self._retry)
            name = await send.keep(
                self._pool, self._ids, leased, outcome, receipt_id=receipt_id, retry=retry, watch=self._watch
            )
            _log.info("settled", effect_id=str(leased.effect_id), job_id=str(leased.job_id), move=name or "dropped")
            if name == "deliver":
                self._follows()
        elif leased.troubled:
            await self._answered(leased)
        if leased.kind == "act":
            await self._ends.put(leased.job_id)
        return name

    async def drain(self) -> None:
        """Wait until nothing is left to settle or to tell."""
        await self._receipts.drain()
        await self._ends.drain()
        await self._teller.drain()

    async def _answered(self, leased: Leased) -> None:
        try:
            await self._watch.answered(self._pool, leased)
        except Exception as error:  # noqa: BLE001 -- the receipt is kept; the next one that is answered says the same
            _log.warning("target_not_noted", effect_id=str(leased.effect_id), error=type(error).__name__)

    def _row(self, leased: Leased, receipt: Receipt, receipt_id: UUID) -> Delivered:
        return Delivered(
            leased.job_id,
            leased.effect_id,
            leased.fence,
            leased.connector,
            receipt_id,
            self._ids.new(),
            storable_text(receipt.provider_id),
            send.kept_json(receipt.evidence),
            short_message(receipt.phase),
        )

    async def _deliver(self, rows: Sequence[Delivered]) -> list[Move | None]:
        try:
            async with autocommit(self._pool) as connection:
                completed = await delivery.deliver(connection, rows)
        except Exception as error:  # noqa: BLE001 -- whether it was kept, each finds out alone under its effect's lock
            _log.warning("settled_alone", count=len(rows), error=type(error).__name__)
            return [None] * len(rows)
        if any(completed.values()):
            self._follows()  # another effect may have waited for one of these
        # A line for all: one for each would take as long as settling it.
        _log.info("delivered", effects=[str(effect_id) for effect_id in completed])
        return ["deliver" if row.effect_id in completed else None for row in rows]

    async def _deliver_one(self, row: Delivered) -> Move | None:
        return (await self._deliver([row]))[0]

    async def _finish(self, job_ids: Sequence[UUID]) -> list[None]:
        alone = distinct = list(dict.fromkeys(job_ids))
        try:
            async with autocommit(self._pool) as connection:
                alone = await delivery.finish(connection, distinct, self._ids.many(len(distinct)))
        except Exception as error:  # noqa: BLE001 -- what was kept stays kept; each job is tried alone, and then by sweep
            _log.warning("finished_alone", count=len(distinct), error=type(error).__name__)
        await asyncio.gather(*(self._finish_one(job_id) for job_id in alone))
        self._teller.soon(jobs=distinct)
        return [None] * len(job_ids)

    async def _finish_one(self, job_id: UUID) -> None:
        try:
            async with transaction(self._pool) as connection:
                await finish_job(connection, self._ids, job_id)
        except Exception as error:  # noqa: BLE001 -- what was kept stays kept; sweep ends the job
            _log.warning("finish_failed", job_id=str(job_id), error=type(error).__name__)
