"""What came of a conformance run, for people and for the settings."""

from dataclasses import dataclass
from email.utils import formatdate, parsedate_to_datetime
from typing import Literal

Mark = Literal["passed", "failed", "not played"]


@dataclass(frozen=True, slots=True)
class Check:
    """One check and how it went; `said` is the reason where it did not pass."""

    name: str
    title: str
    mark: Mark
    said: str = ""


@dataclass(frozen=True, slots=True)
class Report:
    """What came of a run against one target."""

    connector: str
    target: str
    capability: str
    checks: tuple[Check, ...]

    @property
    def passed(self) -> bool:
        """Whether no check failed, and the ones that need nothing of the provider were made."""
        return bool(self.checks) and all(check.mark != "failed" for check in self.checks)

    def text(self) -> str:
        """The report for people, a line for each check."""
        head = f"{self.connector} → {self.target}, declared {self.capability}"
        width = max(len(check.title) for check in self.checks)
        lines = [
            f"  {check.mark:10}  {check.title:{width}}{'  ' + check.said if check.said else ''}".rstrip()
            for check in self.checks
        ]
        bad = sum(check.mark == "failed" for check in self.checks)
        unplayed = sum(check.mark == "not played" for check in self.checks)
        rest = f", {unplayed} not played" if unplayed else ""
        end = f"{bad} of {len(self.checks)} checks failed" if bad else f"conforms: {len(self.checks) - unplayed} checks{rest}"
        return "\n".join([head, *lines, end])

    def proven(self, by: str) -> str:
        """What the setting `proven` of the target says: the day, by this machine's clock, and who answers for the run.

        Raises ValueError where the run did not pass or nobody is named.
        """
        if not self.passed:
            raise ValueError("proven: the run did not pass")
        if not by.strip() or not by.isprintable():
            raise ValueError("proven: somebody has to answer for it")
        # The wall clock: for a date that people read, and that decides nothing.
        return f"{parsedate_to_datetime(formatdate()).date().isoformat()} by {by.strip()}"
