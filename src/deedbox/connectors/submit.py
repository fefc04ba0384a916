"""Starting another action as an effect: held, decided and recorded like any other, and done once by its own key."""

import asyncio
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from deedbox.extend.connector import Ambiguous, Capability, EffectOrder, LookUp, Outcome, Receipt, Refused, Transient
from deedbox.extend.submitter import Submitter
from deedbox.model.errors import DeedboxError

_WHEN_THERE_IS_ROOM = {"too_many_waiting": "rate_limited"}


class SubmitJob(BaseModel):
    """The input of the action to start; documents travel as references of the parent's own input."""

    model_config = ConfigDict(extra="forbid")

    input: dict[str, Any] = Field(default_factory=dict[str, Any], title="Input")


class Submit:
    """Starts jobs. The target is the action's name; the new job has its parent and its trace, and a key made of the effect.

    Capability: native_key, without an end: intake keeps the key, and an effect that is sent again finds its job.
    """

    payload_model: type[BaseModel] = SubmitJob

    def __init__(self, name: str = "submit") -> None:
        """`name` is what `ctx.effect` calls it."""
        self.name = name
        self._submitter: Submitter | None = None

    def take_submitter(self, submitter: Submitter) -> None:
        """Take what submits."""
        self._submitter = submitter

    def check_target(self, target: str) -> None:
        """Raise ValueError where nothing submits here; whether the action is served shows with its input."""
        if self._submitter is None:
            raise ValueError(f"connector {self.name}: this process cannot submit jobs")
        if not target:
            raise ValueError("target: must be the name of an action")

    def check_plan(self, target: str, payload: Mapping[str, Any]) -> None:
        """Raise ValueError for an action that is not served, or an input that does not fit it."""
        self.check_target(target)
        if self._submitter is not None:
            self._submitter.check(target, SubmitJob.model_validate(dict(payload)).input)

    def describe(self, target: str, payload: Mapping[str, Any]) -> str:
        """Which action is started, with how many fields."""
        count = len(SubmitJob.model_validate(dict(payload)).input)
        return f"Starts the action {target} with {count} {'field' if count == 1 else 'fields'} of input."

    def capability(self, target: str) -> Capability:  # noqa: ARG002 -- the protocol's signature
        """Always native_key."""
        return "native_key"

    def key_ttl_s(self, target: str) -> float | None:  # noqa: ARG002 -- the protocol's signature
        """A hundred years: the keys of jobs that effects made are not given up."""
        return 100 * 365 * 86400.0

    async def send(self, order: EffectOrder) -> Outcome:
        """Submit the job, within `order.deadline_s` seconds; a repeated sending answers with the same."""
        if self._submitter is None:
            return Refused("caller_error", "cannot_submit", "This process cannot submit jobs.", "plan")
        try:
            async with asyncio.timeout(order.deadline_s):
                job_id = await self._submitter.submit(
                    order.target,
                    SubmitJob.model_validate(dict(order.payload)).input,
                    effect_id=order.effect_id,
                    parent_job_id=order.job_id,
                    tenant=order.tenant,
                )
        except TimeoutError:
            return Ambiguous("deadline", "The store did not answer in time; the job may have been stored.", "accept")
        except DeedboxError as error:
            return _outcome(error)
        except ValueError:
            return Refused("caller_error", "payload_invalid", "The input does not fit the action.", "plan")
        return Receipt(job_id, {"job_id": job_id, "action": order.target})

    async def look_up(self, order: EffectOrder) -> LookUp:
        """Conclusive: the key of the effect has its job or none. A store that does not answer has not said."""
        if self._submitter is None:
            return LookUp("still_unknown")
        try:
            async with asyncio.timeout(order.deadline_s):
                job_id = await self._submitter.find(order.target, effect_id=order.effect_id, tenant=order.tenant)
        except (TimeoutError, DeedboxError):
            return LookUp("still_unknown", evidence={"reason": "store_away"})
        return LookUp("accepted", job_id, {"job_id": job_id}) if job_id else LookUp("not_accepted")


def _outcome(error: DeedboxError) -> Outcome:
    if error.code == "unavailable":
        return Ambiguous("store_away", "The store was away; the job may have been stored.", "accept")
    if error.code in _WHEN_THERE_IS_ROOM:
        return Transient("rate_limited", error.code, error.detail, "accept", error.retry_after)
    return Refused("denied" if error.code == "permission_denied" else "caller_error", error.code, error.detail, "accept")
