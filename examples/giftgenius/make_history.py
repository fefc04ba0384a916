"""Writes a purchase history: `python -m examples.giftgenius.make_history history.csv`.

Several thousand rows over four years, the same bytes for the same seed. It is as exports are: quoted commas, umlauts, returns
as negative quantities, a few rows that cannot be read, and one order exported twice.
"""

import argparse
import csv
import io
import random
import sys
from datetime import date, timedelta
from pathlib import Path

from examples.giftgenius.goods import CATEGORIES, Category, Product, stock

ROWS = 6_000
SEED = 7
COLUMNS = ("date", "order", "sku", "product", "category", "price_eur", "quantity", "note")
_LIKES: dict[Category, int] = {"outdoor": 9, "books": 7, "cooking": 5, "home": 4, "wellness": 3, "travel": 3}
_FROM = date(2022, 11, 1)
_DAYS = 1_460
_NOTES = ("", "", "", "", "as a present, with a card", "für die Hütte", "express", 'says "thank you"')
_EACH_UNREADABLE = 997
_EACH_RETURN = 61
_TWICE = 2_500


def history(rows: int = ROWS, seed: int = SEED) -> bytes:
    """The history as CSV in UTF-8; the same bytes for the same arguments."""
    draw = random.Random(seed)  # noqa: S311 -- an example's data, not a secret
    shelves: dict[Category, list[Product]] = {category: [] for category in CATEGORIES}
    for product in stock().values():
        shelves[product.category].append(product)
    weights = [_LIKES.get(category, 1) for category in CATEGORIES]
    out = io.StringIO(newline="")
    writer = csv.writer(out)
    writer.writerow(COLUMNS)
    for number in range(1, rows + 1):
        # Half of each shelf was never bought: that is what is left to give.
        product = draw.choice(shelves[draw.choices(CATEGORIES, weights)[0]][::2])
        day = _FROM + timedelta(days=number * _DAYS // rows)
        price = f"{product.price * draw.uniform(0.8, 1.1):.2f}"
        quantity = "-1" if number % _EACH_RETURN == 0 else str(draw.choice((1, 1, 1, 2)))
        row = [day.isoformat(), f"O-{number // 2:05d}", product.sku, f"{product.title}, {product.category}", product.category]
        row += [price, quantity, draw.choice(_NOTES)]
        if number % _EACH_UNREADABLE == 0:
            row[5] = "n/a"
        writer.writerow(row)
        if number == _TWICE:
            writer.writerow(row)
    return out.getvalue().encode()


def main() -> int:
    """Write the file."""
    parser = argparse.ArgumentParser(description="Write a purchase history of several thousand rows.")
    parser.add_argument("file", type=Path)
    parser.add_argument("--rows", type=int, default=ROWS)
    parser.add_argument("--seed", type=int, default=SEED)
    given = parser.parse_args()
    given.file.write_bytes(history(given.rows, given.seed))
    sys.stdout.write(f"{given.rows} purchases in {given.file}\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
