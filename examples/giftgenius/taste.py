"""Reads a purchase history: what was bought, how often, and what cannot be read in it."""

import csv
import io
from collections import Counter
from datetime import date

from pydantic import BaseModel, Field

from examples.giftgenius.goods import CATEGORIES, Category

MOST_ROWS = 200_000
_WANTED = ("date", "sku", "category", "price_eur", "quantity")


class UnreadableHistoryError(ValueError):
    """The document is no purchase history: not text, or without the columns that are needed."""


class Taste(BaseModel):
    """What a history says; counts are of articles, `unreadable` of rows that were passed over."""

    rows: int = Field(ge=0)
    unreadable: int = Field(ge=0)
    repeated: int = Field(ge=0)
    since: date
    until: date
    bought: dict[Category, int]
    owned: list[str]

    def favourites(self, count: int) -> list[Category]:
        """The categories that were bought most, the most first."""
        return sorted(self.bought, key=lambda category: (-self.bought[category], category))[:count]


def read_history(content: bytes) -> Taste:
    """Read a history. Raises UnreadableHistoryError with a sentence where it is none, or where no row can be read."""
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UnreadableHistoryError("The document is not a text in UTF-8.") from error
    reader = csv.DictReader(io.StringIO(text, newline=""))
    missing = [name for name in _WANTED if name not in (reader.fieldnames or ())]
    if missing:
        raise UnreadableHistoryError(f"The document lacks the columns {', '.join(missing)}.")
    bought: Counter[Category] = Counter()
    kept: Counter[str] = Counter()
    days: list[date] = []
    rows = unreadable = repeated = 0
    before: list[str | None] = []
    for row in reader:
        rows += 1
        if rows > MOST_ROWS:
            raise UnreadableHistoryError(f"The document has more than {MOST_ROWS} rows.")
        now = [row.get(name) for name in reader.fieldnames or ()]
        if now == before:
            repeated += 1
            continue
        before = now
        line = _line(row)
        if line is None:
            unreadable += 1
            continue
        day, sku, category, quantity = line
        days.append(day)
        bought[category] += quantity
        kept[sku] += quantity
    if not days:
        raise UnreadableHistoryError("The document has no row that can be read.")
    return Taste(
        rows=rows,
        unreadable=unreadable,
        repeated=repeated,
        since=min(days),
        until=max(days),
        bought={category: count for category, count in bought.items() if count > 0},
        owned=sorted(sku for sku, count in kept.items() if count > 0),
    )


def _line(row: dict[str, str | None]) -> tuple[date, str, Category, int] | None:
    """One row, or None for one that cannot be read."""
    try:
        day, quantity = date.fromisoformat(row["date"] or ""), int(row["quantity"] or "")
        float(row["price_eur"] or "")
    except ValueError:
        return None
    sku = (row["sku"] or "").strip()
    known: list[Category] = [category for category in CATEGORIES if category == row["category"]]
    return (day, sku, known[0], quantity) if sku and known else None
