"""What a measurement yields, and how samples become medians."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

# A sample during which others took more of the machine than this is left out where enough quieter ones exist.
NOISY = 0.15
_ENOUGH = 2


@dataclass(frozen=True, slots=True)
class Sample:
    """One measurement. `values` are rates per second (`rate`), milliseconds (`p50`, `p99`) and microseconds (`cpu_us`).

    `count` jobs were counted, of which so many were duplicates and losses, looked up in the database; `others` is the share
    of the machine that other programs took meanwhile.
    """

    cell: str
    values: dict[str, float]
    count: int
    duplicates: int
    losses: int
    others: float
    round: int = 0

    def as_json(self) -> dict[str, Any]:
        """As it stands in a result file, rounded to what can be believed."""
        return asdict(self) | {
            "values": {name: round(value, 4) for name, value in self.values.items()},
            "others": round(self.others, 3),
        }


def percentiles(waits: Sequence[float], *, prefix: str = "", shares: Sequence[int] = (50, 99)) -> dict[str, float]:
    """p50 and p99, or other `shares`, in milliseconds, of waits in seconds."""
    ordered = sorted(waits)
    if not ordered:
        return {}
    return {f"{prefix}p{share}": ordered[min(len(ordered) - 1, len(ordered) * share // 100)] * 1e3 for share in shares}


def medians(samples: Iterable[Sample]) -> dict[str, dict[str, float]]:
    """By cell and value; quiet samples alone count where there are at least two of them."""
    cells: dict[str, list[Sample]] = {}
    for sample in samples:
        cells.setdefault(sample.cell, []).append(sample)
    found: dict[str, dict[str, float]] = {}
    for cell, all_samples in cells.items():
        quiet = [sample for sample in all_samples if sample.others <= NOISY]
        used = quiet if len(quiet) >= _ENOUGH else all_samples
        found[cell] = {
            name: median(sample.values[name] for sample in used if name in sample.values) for name in used[0].values
        } | {"samples": len(used), "others": median(sample.others for sample in used)}
    return found
