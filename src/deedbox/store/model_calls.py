"""What was asked of models, with tokens and cost: kept for each call, added up for a job, reported for a tenant."""

from dataclasses import asdict, dataclass
from decimal import Decimal
from uuid import UUID

from deedbox.store.loader import statement
from deedbox.store.pool import Connection


@dataclass(frozen=True, slots=True)
class ModelCallRow:
    """One call of `ctx.model`, or one turn of an agent. `cost` is None where nobody named a price; `code` is the failure's."""

    call_id: UUID
    job_id: UUID
    attempt_id: UUID
    tenant: str
    action: str
    part: str
    endpoint: str
    model: str
    requests: int
    input_tokens: int
    output_tokens: int
    duration_ms: int
    turn: int = 0
    tool_calls: int = 0
    repairs: int = 0
    cost: Decimal | None = None
    currency: str | None = None
    code: str | None = None


@dataclass(frozen=True, slots=True)
class SpentRow:
    """What a job has spent so far, over all of its attempts and rounds."""

    requests: int
    input_tokens: int
    output_tokens: int
    tool_calls: int
    cost: Decimal
    canceled: bool
    """Somebody has asked for it to stop."""


@dataclass(frozen=True, slots=True)
class ModelReportRow:
    """A line of the report: calls and failures, tokens, and the cost as text where the endpoint has a price."""

    action: str
    endpoint: str
    model: str
    currency: str | None
    calls: int
    failures: int
    requests: int
    input_tokens: int
    output_tokens: int
    tool_calls: int
    repairs: int
    cost: str | None
    jobs: int


async def journal(connection: Connection, row: ModelCallRow) -> None:
    """Keep one row; not fenced, because what a lost attempt has asked was paid for as well."""
    await connection.execute(statement("model_calls", "journal"), asdict(row))


async def spent(connection: Connection, job_id: UUID, currency: str, *, except_part: str = "", from_turn: int = 0) -> SpentRow:
    """What the job has spent, but for the turns of `except_part` from `from_turn` on."""
    cursor = await connection.execute(
        statement("model_calls", "spent"),
        {"job_id": job_id, "currency": currency, "except_part": except_part, "from_turn": from_turn},
    )
    row = await cursor.fetchone()
    return SpentRow(*row) if row else SpentRow(0, 0, 0, 0, Decimal(0), canceled=False)


async def steps(connection: Connection, job_id: UUID, prefix: str) -> dict[str, tuple[bytes, str]]:
    """The job's checkpoints whose names begin so: input hash and value of each."""
    cursor = await connection.execute(statement("model_calls", "steps"), {"job_id": job_id, "prefix": prefix})
    return {str(row[0]): (bytes(row[1]), str(row[2])) for row in await cursor.fetchall()}


async def drafted(connection: Connection, job_id: UUID, stream: str) -> int:
    """How many characters of an answer have been shown as a draft, by whichever attempt."""
    cursor = await connection.execute(statement("model_calls", "drafted"), {"job_id": job_id, "stream": stream})
    row = await cursor.fetchone()
    return int(row[0]) if row else 0


async def report(connection: Connection, tenant: str, seconds: float) -> list[ModelReportRow]:
    """What the tenant's actions have spent in the last `seconds`, the dearest first; at most a thousand lines."""
    cursor = await connection.execute(statement("model_calls", "report"), {"tenant": tenant, "seconds": seconds})
    return [ModelReportRow(*row) for row in await cursor.fetchall()]
