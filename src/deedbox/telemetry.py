"""Names of metrics and log fields, in one table, and how logging is set up."""

import json
import logging
from contextvars import ContextVar
from functools import cache
from typing import Any, cast
from uuid import UUID

import structlog
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from structlog.typing import EventDict

REGISTRY = CollectorRegistry()

ACCEPTED = Counter("deedbox_jobs_accepted_total", "Jobs stored and answered with 202.", ["action"], registry=REGISTRY)
REPLAYED = Counter("deedbox_jobs_replayed_total", "Deliveries of a key that had its job.", ["action"], registry=REGISTRY)
REFUSED = Counter("deedbox_calls_refused_total", "Calls refused, by code.", ["code"], registry=REGISTRY)
SETTLED = Counter("deedbox_attempts_settled_total", "Attempts settled, by move.", ["action", "move"], registry=REGISTRY)
STALE = Counter("deedbox_attempts_stale_total", "Outcomes refused because the lease was lost.", registry=REGISTRY)
RESCUED = Counter("deedbox_leases_rescued_total", "Leases that ran out and were taken over.", registry=REGISTRY)
EFFECTS = Counter("deedbox_effects_ended_total", "Sendings, by connector and move.", ["connector", "move"], registry=REGISTRY)
ACCEPT_SECONDS = Histogram("deedbox_accept_seconds", "From request to commit.", registry=REGISTRY)
RUNNING = Gauge("deedbox_attempts_running", "Attempts this process holds.", registry=REGISTRY)
JOBS = Gauge("deedbox_jobs", "Jobs that have not ended, by state.", ["state"], registry=REGISTRY)
EFFECTS_OPEN = Gauge("deedbox_effects_open", "Effects that have not ended, by state.", ["state"], registry=REGISTRY)
OLDEST_QUEUED = Gauge("deedbox_oldest_queued_seconds", "Age of the oldest job that is due.", registry=REGISTRY)


ATTEMPT: ContextVar[tuple[UUID, UUID] | None] = ContextVar("deedbox_attempt", default=None)
"""The job and the attempt that this task or thread works for; every line of the log that it writes names them."""


def _of_attempt(_logger: object, _method: str, event: EventDict) -> EventDict:
    attempt = ATTEMPT.get()
    if attempt is not None:
        event.setdefault("job_id", str(attempt[0]))
        event.setdefault("attempt_id", str(attempt[1]))
    return event


_ENCODE = json.JSONEncoder(default=repr).encode


def _written(event: Any, **_options: Any) -> str:
    return _ENCODE(event)


def configure_logging(level: str) -> None:
    """Structured JSON lines on standard error. Raises ValueError for a level that does not exist."""
    number = logging.getLevelNamesMapping().get(level.upper())
    if number is None:
        raise ValueError(f"log level {level!r} is not one of debug, info, warning, error")
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            _of_attempt,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer(serializer=_written),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(number),
        logger_factory=structlog.PrintLoggerFactory(file=__import__("sys").stderr),
        cache_logger_on_first_use=True,
    )
    log.cache_clear()


@cache
def log(name: str) -> structlog.stdlib.BoundLogger:
    """A logger; `name` says which part of the road writes."""
    return cast("structlog.stdlib.BoundLogger", structlog.get_logger(part=name))
