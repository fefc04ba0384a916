"""What `ctx.read` does: a GET at a named target, through egress, with the target's own credentials."""

from http import HTTPStatus
from typing import Any

from deedbox.connectors.answers import SUCCESS, UnreadableError, read_json, retry_after
from deedbox.connectors.settings import ConnectorSettings
from deedbox.connectors.targets import HttpTargets
from deedbox.egress import EgressPolicy, MaybeSent
from deedbox.model.failure import ActionFailure, class_of_status


class TargetReader:
    """Reads JSON from the HTTP targets of settings. Reading again does no harm, so no failure of it is ambiguous."""

    def __init__(self, settings: ConnectorSettings, egress: EgressPolicy) -> None:
        """Nothing is opened until the first read."""
        self._targets = HttpTargets(settings, egress)

    async def read(self, target_name: str, path: str, deadline_s: float) -> Any:
        """The JSON that a GET of `path` at the target answers, within `deadline_s` seconds; None for a 204.

        Raises ActionFailure: `caller_error` for a target or path that does not exist here and for an answer that is not
        JSON, the class of the status for anything but a 2xx, `not_sent` or `overloaded` for a connection that failed
        before or after the request left, `denied` where egress forbids it.
        """
        target = self._targets.get(target_name)
        if target is None:
            raise ActionFailure("caller_error", "unknown_target", f"No target named {target_name!r} is set.")
        try:
            answer = await self._targets.call(target, "GET", path, deadline_s=deadline_s)
        except ValueError as error:
            raise ActionFailure("caller_error", "path_invalid", f"The path for {target_name} cannot be used.") from error
        except MaybeSent as error:
            raise ActionFailure("overloaded", f"read_{error.code}", f"{target_name}: {error.message}") from error
        if answer.status == HTTPStatus.NO_CONTENT:
            return None
        if answer.status not in SUCCESS:
            raise ActionFailure(
                class_of_status(answer.status),
                f"read_{answer.status}",
                f"The target {target_name} answered {answer.status}.",
                retry_after=retry_after(answer),
            )
        try:
            return read_json(answer.body)
        except UnreadableError as error:
            raise ActionFailure("caller_error", "read_unreadable", f"The answer of {target_name} is not JSON.") from error

    async def aclose(self) -> None:
        """Close what is open."""
        await self._targets.aclose()
