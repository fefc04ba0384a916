"""Names of metrics and log fields, in one table, and how logging is set up."""

import json
import logging
import sys
from collections.abc import Callable, Iterable
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache, lru_cache
from typing import Any, cast
from uuid import UUID

import structlog
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from structlog.typing import EventDict

from deedbox.model import secrets
from deedbox.model.sensitive import ANY_DEPTH, HIDDEN, MASKED, Path, masked, scrubbed

REGISTRY = CollectorRegistry()

ACCEPTED = Counter("deedbox_jobs_accepted_total", "Jobs stored and answered with 202.", ["action"], registry=REGISTRY)
REPLAYED = Counter("deedbox_jobs_replayed_total", "Deliveries of a key that had its job.", ["action"], registry=REGISTRY)
REFUSED = Counter("deedbox_calls_refused_total", "Calls refused, by code.", ["code"], registry=REGISTRY)
SETTLED = Counter("deedbox_attempts_settled_total", "Attempts settled, by move.", ["action", "move"], registry=REGISTRY)
STALE = Counter("deedbox_attempts_stale_total", "Outcomes refused because the lease was lost.", registry=REGISTRY)
RESCUED = Counter("deedbox_leases_rescued_total", "Leases that ran out and were taken over.", registry=REGISTRY)
EFFECTS = Counter("deedbox_effects_ended_total", "Sendings, by connector and move.", ["connector", "move"], registry=REGISTRY)
NOTICES = Counter("deedbox_notices_made_total", "Notices put on the outbox: mails that ask, alerts.", registry=REGISTRY)
ALERTS_OPEN = Gauge("deedbox_alerts_open", "Alerts that nobody has closed, by cause.", ["cause"], registry=REGISTRY)
ACCEPT_SECONDS = Histogram("deedbox_accept_seconds", "From request to commit.", registry=REGISTRY)
RUNNING = Gauge("deedbox_attempts_running", "Attempts this process holds.", registry=REGISTRY)
JOBS = Gauge("deedbox_jobs", "Jobs that have not ended, by state.", ["state"], registry=REGISTRY)
EFFECTS_OPEN = Gauge("deedbox_effects_open", "Effects that have not ended, by state.", ["state"], registry=REGISTRY)
MODEL_REQUESTS = Counter(
    "deedbox_model_requests_total", "Requests to models, by endpoint and outcome.", ["endpoint", "outcome"], registry=REGISTRY
)
MODEL_SECONDS = Histogram(
    "deedbox_model_request_seconds",
    "How long requests to models took.",
    ["endpoint"],
    buckets=(0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 40, 80, 160),
    registry=REGISTRY,
)
MODEL_TOKENS = Counter("deedbox_model_tokens_total", "Tokens of models, in and out.", ["endpoint", "way"], registry=REGISTRY)
MODEL_COST = Counter(
    "deedbox_model_cost_total", "What models cost, by the settings.", ["endpoint", "currency"], registry=REGISTRY
)
AGENT_CALLS = Counter(
    "deedbox_agent_calls_total", "Calls of tools by agents, by outcome.", ["action", "outcome"], registry=REGISTRY
)
OLDEST_QUEUED = Gauge("deedbox_oldest_queued_seconds", "Age of the oldest job that is due.", registry=REGISTRY)


ATTEMPT: ContextVar[tuple[UUID, UUID] | None] = ContextVar("deedbox_attempt", default=None)
"""The job and the attempt that this task or thread works for; every line of the log that it writes names them."""

_NEVER_LOGGED = frozenset(
    {
        "password",
        "passwd",
        "secret",
        "token",
        "api_key",
        "apikey",
        "authorization",
        "cookie",
        "set_cookie",
        "bearer",
        "private_key",
    }
)


def clean(text: str) -> str:
    """A text without what looks like a secret and without the sensitive texts of the task at hand."""
    return scrubbed(secrets.masked(text), HIDDEN.get())


def _cleaned(value: Any) -> Any:
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, dict):
        items = cast("dict[Any, Any]", value).items()
        return {name: MASKED if _unspoken(name) and item is not None else _cleaned(item) for name, item in items}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_cleaned(item) for item in cast("list[Any]", value)]
    if value is None or isinstance(value, (bool, int, float)):
        return value
    # As it would be written.
    return clean(value if isinstance(value, str) else repr(value) if not isinstance(value, UUID) else str(value))


def _unspoken(name: Any) -> bool:
    return isinstance(name, str) and name.lower().replace("-", "_") in _NEVER_LOGGED


def _redacted(_logger: object, _method: str, event: EventDict) -> EventDict:
    """The second line: what should not have come as far as the log does not get into it."""
    return cast("EventDict", _cleaned(event))


def _of_attempt(_logger: object, _method: str, event: EventDict) -> EventDict:
    attempt = ATTEMPT.get()
    if attempt is not None:
        event.setdefault("job_id", str(attempt[0]))
        event.setdefault("attempt_id", str(attempt[1]))
    return event


_ENCODE = json.JSONEncoder(default=repr).encode


def _written(event: Any, **_options: Any) -> str:
    return _ENCODE(event)


class _Direct:
    """How the line of a request gets past the processors of structlog: only while they are those set up here."""

    def __init__(self) -> None:
        self._processors: list[Any] = []
        self._last: Any = None
        self._print: Callable[[str], Any] | None = None

    def set_up(self, processors: list[Any], printer: Callable[[str], Any] | None) -> None:
        """Take note of what is configured; `printer` is None where lines at the level of info are not written."""
        self._processors, self._last, self._print = processors, processors[-1], printer

    def printer(self) -> Callable[[str], Any] | None:
        """What prints a line; None where somebody else has taken over, a test that captures lines, for one."""
        # Who captures puts something else into the very same list.
        ours = structlog.get_config()["processors"] is self._processors and self._processors[-1] is self._last
        return self._print if ours else None


_DIRECT = _Direct()


@dataclass(frozen=True, slots=True)
class PayloadLog:
    """How payloads are logged: for how many days, for whom, and which members are masked at any depth."""

    keep_days: float
    readers: tuple[str, ...]
    masks: tuple[str, ...]


class _Payloads:
    """Whether payloads are logged; they are not until `configure_logging` says how."""

    how: PayloadLog | None = None


def logs_payloads() -> bool:
    """Whether payloads are logged."""
    return _Payloads.how is not None


def log_payload(part: str, what: str, value: Any, paths: Iterable[Path] = ()) -> None:
    """Log an input, a prompt or an answer at the level of debug, where it was set how; never unmasked.

    `paths` are those of its sensitive fields. What stands in every line says how long it may be kept and who may read it.
    """
    how = _Payloads.how
    if how is None:
        return
    shown = masked(value, (*paths, *((ANY_DEPTH, name) for name in how.masks)))
    log(part).debug("payload", what=what, value=shown, keep_days=how.keep_days, readers=list(how.readers))


def configure_logging(level: str, payloads: PayloadLog | None = None) -> None:
    """Structured JSON lines on standard error; `payloads` too where that says how. Raises ValueError for an unknown level."""
    _Payloads.how = payloads
    number = logging.getLevelNamesMapping().get(level.upper())
    if number is None:
        raise ValueError(f"log level {level!r} is not one of debug, info, warning, error")
    processors: list[Any] = [
        structlog.contextvars.merge_contextvars,
        _of_attempt,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
        _redacted,
        structlog.processors.JSONRenderer(serializer=_written),
    ]
    factory = structlog.PrintLoggerFactory(file=sys.stderr)
    structlog.configure(
        processors=processors,
        wrapper_class=structlog.make_filtering_bound_logger(number),
        logger_factory=factory,
        cache_logger_on_first_use=True,
    )
    log.cache_clear()
    _DIRECT.set_up(processors, factory().info if number <= logging.INFO else None)


@cache
def log(name: str) -> structlog.stdlib.BoundLogger:
    """A logger; `name` says which part of the road writes."""
    return cast("structlog.stdlib.BoundLogger", structlog.get_logger(part=name))


@lru_cache(maxsize=256)
def _quoted(text: str) -> str:
    return _ENCODE(text)


def log_request(method: str, route: str, status: int, duration_ms: float, job_id: str | None) -> None:
    """Log the end of a request as `log("http").info("request", ...)` does, without what is bound to the context.

    It is the one line that every request costs, so it is put together here, ten times as fast, wherever it would come out the
    same. `route` is the template.
    """
    printer = _DIRECT.printer()
    if printer is None:
        job = {} if job_id is None else {"job_id": job_id}
        log("http").info("request", method=method, route=route, status=status, duration_ms=duration_ms, **job)
        return
    job_text = "" if job_id is None else f', "job_id": {_ENCODE(job_id)}'
    now = datetime.now(UTC).isoformat().replace("+00:00", "Z")  # noqa: TID251 -- when a line was written; nothing is decided by it
    printer(
        f'{{"part": "http", "method": {_quoted(method)}, "route": {_quoted(route)}, "status": {status}, '
        f'"duration_ms": {duration_ms}{job_text}, "event": "request", "level": "info", '
        f'"timestamp": "{now}"}}'
    )
