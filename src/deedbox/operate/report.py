"""What actions have spent on models lately, for whoever looks at the bill: figures alone, no contents."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from decimal import Decimal
from typing import Any

from deedbox.model.errors import DeedboxError
from deedbox.model.identity import Principal
from deedbox.store import model_calls
from deedbox.store.model_calls import ModelReportRow
from deedbox.store.pg_errors import AWAY
from deedbox.store.pool import Pool
from deedbox.store.transaction import autocommit

LONGEST_S = 400 * 86400.0


@dataclass(frozen=True, slots=True)
class Report:
    """The last `seconds`: a line for each action, endpoint and model, and what they cost together, by currency.

    `unpriced` is how many calls went to endpoints whose price nobody has set: their cost is not in the sum.
    """

    seconds: float
    models: tuple[ModelReportRow, ...]
    cost: Mapping[str, str]
    unpriced: int

    def shown(self) -> dict[str, Any]:
        """As it is sent; amounts of money are text."""
        return {
            "seconds": self.seconds,
            "models": [asdict(line) for line in self.models],
            "cost": dict(self.cost),
            "unpriced": self.unpriced,
        }


class Reports:
    """Reports of a tenant."""

    def __init__(self, pool: Pool) -> None:
        """Reads through `pool`."""
        self._pool = pool

    async def models(self, principal: Principal, seconds: float) -> Report:
        """What the tenant's actions have spent. Raises DeedboxError: permission_denied, invalid_parameter, unavailable."""
        if not principal.may("read"):
            raise DeedboxError("permission_denied", "The report needs a role that may read.")
        if not 0 < seconds <= LONGEST_S:
            raise DeedboxError("invalid_parameter", "The report goes back 400 days at most.")
        try:
            async with autocommit(self._pool) as connection:
                lines = await model_calls.report(connection, principal.tenant, seconds)
        except AWAY as error:
            raise DeedboxError("unavailable", "The store cannot be reached; try again shortly.", retry_after=1) from error
        cost: dict[str, Decimal] = {}
        for line in lines:
            if line.currency is not None and line.cost is not None:
                cost[line.currency] = cost.get(line.currency, Decimal(0)) + Decimal(line.cost)
        unpriced = sum(line.calls for line in lines if line.cost is None)
        return Report(seconds, tuple(lines), {name: plain_money(amount) for name, amount in sorted(cost.items())}, unpriced)


def plain_money(amount: Decimal | str) -> str:
    """An amount without an exponent, and without zeros that say nothing."""
    text = f"{Decimal(amount):f}"
    return text.rstrip("0").rstrip(".") if "." in text else text
