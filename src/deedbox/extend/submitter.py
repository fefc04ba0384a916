"""What lets one action start another: filled by wiring, used by the connector that submits jobs."""

from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable


class Submitter(Protocol):
    """Makes jobs on behalf of other jobs. One effect makes one job, however often it is sent."""

    def check(self, action: str, given: Mapping[str, Any]) -> None:
        """Raise ValueError for an action that is not served or an input that does not fit it. No I/O."""
        ...

    async def submit(self, action: str, given: Mapping[str, Any], *, effect_id: str, parent_job_id: str, tenant: str) -> str:
        """The id of the effect's job, made now or by an earlier sending.

        It runs for whoever the parent runs for, with that one's roles of today. Raises DeedboxError.
        """
        ...

    async def find(self, action: str, *, effect_id: str, tenant: str) -> str | None:
        """The id of the effect's job, or None where there is none."""
        ...


@runtime_checkable
class TakesSubmitter(Protocol):
    """A connector that submits jobs."""

    def take_submitter(self, submitter: Submitter) -> None:
        """Take what submits; called once per process before any other method."""
        ...
