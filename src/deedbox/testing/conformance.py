"""The conformance run: whether a connector tells the truth about what became of what it sent.

    async with HttpProvider().running() as provider:
        report = await conform(connector, provider, target="crm", payload=lambda effect_id: {...})
    print(report.text())
    assert report.passed

Every check sends an effect of its own to a provider that breaks in a known way, and compares what the connector said with what
the provider did. Sockets are real. A run takes about a dozen deadlines.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable
from uuid import uuid4

from deedbox.extend.connector import Ambiguous, Connector, EffectOrder, LookUp, Outcome, Receipt, Refused, Transient
from deedbox.testing.report import Check, Mark, Report

GRACE_S = 0.5
"""How long past its deadline a connector may take, in seconds: the dispatcher waits no longer either."""

KEYED = frozenset({"native_key", "upsert_key"})


class Provider(Protocol):
    """What the run asks of the provider behind a connector; `HttpProvider` and `SmtpServer` of this package are such."""

    @property
    def calls(self) -> int:
        """How many requests, or conversations, have reached it."""
        ...

    @property
    def wait_s(self) -> float:
        """The wait in seconds that it asks for when it is called too often; zero where it names none."""
        ...

    def plays(self, fault: str) -> bool:
        """Whether it can break in this way."""
        ...

    def play_next(self, fault: str) -> None:
        """Break in this way at the next request."""
        ...

    def forget(self) -> None:
        """Behave again."""
        ...

    def away(self) -> AbstractAsyncContextManager[None]:
        """Not be there until the block ends."""
        ...

    async def effects_of(self, effect_id: str) -> int | None:
        """How often it did what this effect asks; None where that cannot be counted."""
        ...


@runtime_checkable
class _RemembersKeys(Protocol):
    def key_ttl_s(self, target: str) -> float | None: ...


class _BrokenPromiseError(Exception):
    """What the connector did that it must not."""


class _NotPlayedError(Exception):
    """The provider cannot do what the check needs."""


@dataclass(frozen=True, slots=True)
class _Run:
    """One run: how effects are sent and counted."""

    connector: Connector
    provider: Provider
    target: str
    payload: Callable[[str], Mapping[str, Any]]
    deadline_s: float
    tenant: str
    job_id: str

    @property
    def capability(self) -> str:
        return self.connector.capability(self.target)

    def order(self, effect_id: str, attempt: int = 1) -> EffectOrder:
        return EffectOrder(
            effect_id=effect_id,
            job_id=self.job_id,
            tenant=self.tenant,
            connector=self.connector.name,
            target=self.target,
            slot="conformance",
            payload=self.payload(effect_id),
            attempt=attempt,
            deadline_s=self.deadline_s,
        )

    async def send(self, effect_id: str, *, fault: str | None = None, attempt: int = 1) -> Outcome:
        """Send once. Raises _BrokenPromiseError where it raises, overruns, answers no outcome or sends more than once."""
        calls = self.provider.calls
        async with self._playing(fault):
            outcome = await self._within(self.connector.send(self.order(effect_id, attempt)), "send")
        if not isinstance(outcome, (Receipt, Transient, Refused, Ambiguous)):
            raise _BrokenPromiseError(f"send answered {type(outcome).__name__}, which is no outcome")
        made = self.provider.calls - calls
        if made > 1:
            raise _BrokenPromiseError(f"one sending made {made} calls: a connector must not try again by itself")
        return outcome

    async def look_up(self, effect_id: str, *, fault: str | None = None) -> LookUp:
        """Look up once. Raises _BrokenPromiseError as `send` does."""
        async with self._playing(fault):
            said = await self._within(self.connector.look_up(self.order(effect_id)), "look_up")
        if not isinstance(said, LookUp):
            raise _BrokenPromiseError(f"look_up answered {type(said).__name__}, which is no LookUp")
        return said

    async def done(self, effect_id: str, wanted: int) -> None:
        """Raises _BrokenPromiseError unless the provider did it so many times, as far as it can count."""
        found = await self.provider.effects_of(effect_id)
        if found is not None and found != wanted:
            raise _BrokenPromiseError(f"the provider did it {found} times, not {wanted}")

    @asynccontextmanager
    async def _playing(self, fault: str | None) -> AsyncGenerator[None]:
        if fault is None:
            yield
            return
        if not self.provider.plays(fault):
            raise _NotPlayedError(f"the provider cannot play {fault}")
        self.provider.play_next(fault)
        try:
            yield
        finally:
            self.provider.forget()

    async def _within(self, call: Awaitable[object], what: str) -> object:
        try:
            async with asyncio.timeout(self.deadline_s + GRACE_S):
                return await call
        except TimeoutError:
            said = f"{what} did not end within {self.deadline_s:g} s and a grace of {GRACE_S:g} s"
            raise _BrokenPromiseError(said) from None
        except Exception as error:
            raise _BrokenPromiseError(f"{what} raised {type(error).__name__}: {error}") from error


async def _accepts(run: _Run) -> None:
    effect_id = str(uuid4())
    outcome = await run.send(effect_id)
    if not isinstance(outcome, Receipt):
        raise _BrokenPromiseError(f"a healthy provider gave {_shown(outcome)}")
    if not outcome.provider_id:
        raise _BrokenPromiseError("the receipt names nothing")
    await run.done(effect_id, 1)


async def _tells_apart(run: _Run) -> None:
    ids = [_receipt_of(await run.send(str(uuid4()))).provider_id for _ in range(2)]
    if ids[0] == ids[1]:
        raise _BrokenPromiseError(f"two effects have one receipt: {ids[0]}")


async def _same_key_twice(run: _Run) -> None:
    effect_id = str(uuid4())
    receipts = [_receipt_of(await run.send(effect_id, attempt=number)) for number in (1, 2)]
    if run.capability in KEYED:
        await run.done(effect_id, 1)
        _same(receipts)


async def _resent_after_loss(run: _Run) -> None:
    if run.capability not in KEYED:
        raise _NotPlayedError(f"a {run.capability} target is not sent to again by itself")
    ttl_s = run.connector.key_ttl_s(run.target) if isinstance(run.connector, _RemembersKeys) else None
    if run.capability == "native_key" and not ttl_s:
        raise _BrokenPromiseError("a native key needs a time that it lives: key_ttl_s says none")
    effect_id = str(uuid4())
    await run.send(effect_id, fault="accept_then_hang")
    receipts = [_receipt_of(await run.send(effect_id, attempt=number)) for number in (2, 3)]
    await run.done(effect_id, 1)
    _same(receipts)


def _may_be_done(fault: str) -> Callable[[_Run], Awaitable[None]]:
    async def check(run: _Run) -> None:
        effect_id = str(uuid4())
        outcome = await run.send(effect_id, fault=fault)
        await run.done(effect_id, 1)
        if isinstance(outcome, Ambiguous):
            return
        if isinstance(outcome, Receipt) and fault == "accept_then_garbage" and run.capability in KEYED:
            # Where the status alone is the receipt, it names what the key names, and so does that of the next sending.
            _same([outcome, _receipt_of(await run.send(effect_id, attempt=2))])
            await run.done(effect_id, 1)
            return
        why = "of which it cannot have read a receipt" if isinstance(outcome, Receipt) else "which it may have done"
        raise _BrokenPromiseError(f"it said {_shown(outcome)} of a thing {why}")

    return check


async def _refused(run: _Run) -> None:
    effect_id = str(uuid4())
    outcome = await run.send(effect_id, fault="refuse")
    await run.done(effect_id, 0)
    if not isinstance(outcome, Refused):
        raise _BrokenPromiseError(f"a permanent refusal became {_shown(outcome)}")


async def _limited(run: _Run) -> None:
    effect_id = str(uuid4())
    outcome = await run.send(effect_id, fault="rate_limited")
    await run.done(effect_id, 0)
    if not isinstance(outcome, Transient) or outcome.failure_class != "rate_limited":
        raise _BrokenPromiseError(f"a limit became {_shown(outcome)}")
    if run.provider.wait_s and outcome.retry_after != run.provider.wait_s:
        raise _BrokenPromiseError(f"it was to wait {run.provider.wait_s:g} s, and passed on {outcome.retry_after}")


async def _away(run: _Run) -> None:
    async with run.provider.away():
        outcome = await run.send(str(uuid4()))
    if isinstance(outcome, Ambiguous) and run.capability in KEYED:
        return  # more careful than it need be, and it costs nothing: it is sent again under the same key
    if not isinstance(outcome, Transient) or outcome.failure_class != "not_sent":
        raise _BrokenPromiseError(f"nobody listened, and it said {_shown(outcome)}")


async def _not_read(run: _Run) -> None:
    effect_id = str(uuid4())
    outcome = await run.send(effect_id, fault="hang_before_reading")
    await run.done(effect_id, 0)
    if not isinstance(outcome, (Ambiguous, Transient)):
        raise _BrokenPromiseError(f"a provider that says nothing became {_shown(outcome)}")


async def _found_after_loss(run: _Run) -> None:
    lost, clean = str(uuid4()), str(uuid4())
    await run.send(lost, fault="accept_then_hang")
    named = _receipt_of(await run.send(clean)).provider_id
    sure = run.capability in {"searchable", "upsert_key"}
    for effect_id in (lost, clean):
        said = await run.look_up(effect_id)
        if said.verdict == "not_accepted":
            raise _BrokenPromiseError("look_up denied what had been done: it would be done again")
        if said.verdict == "still_unknown" and sure:
            raise _BrokenPromiseError(f"a {run.capability} target can be asked, and look_up could not tell")
        if said.verdict == "accepted" and effect_id == clean and said.provider_id != named:
            raise _BrokenPromiseError(f"the receipt names {named} and the look-up {said.provider_id}")


async def _not_found(run: _Run) -> None:
    said = await run.look_up(str(uuid4()))
    if said.verdict == "accepted":
        raise _BrokenPromiseError(f"look_up found {said.provider_id} for an effect that was never sent")
    if said.verdict == "not_accepted" and run.capability == "blind":
        raise _BrokenPromiseError("look_up is sure that there is nothing, and the target is declared blind")
    if said.verdict == "still_unknown" and run.capability in {"searchable", "upsert_key"}:
        raise _BrokenPromiseError(f"a {run.capability} target can be asked, and look_up could not tell")


def _unclear(fault: str) -> Callable[[_Run], Awaitable[None]]:
    async def check(run: _Run) -> None:
        effect_id = str(uuid4())
        _receipt_of(await run.send(effect_id))
        calls = run.provider.calls
        said = await run.look_up(effect_id, fault=fault)
        if run.provider.calls == calls:
            raise _NotPlayedError("look_up asks nobody")
        if said.verdict != "still_unknown":
            raise _BrokenPromiseError(f"look_up said {said.verdict} of an answer that it cannot have read")

    return check


def _receipt_of(outcome: Outcome) -> Receipt:
    if not isinstance(outcome, Receipt):
        raise _BrokenPromiseError(f"a healthy provider gave {_shown(outcome)}")
    return outcome


def _same(receipts: list[Receipt]) -> None:
    ids = {receipt.provider_id for receipt in receipts}
    if len(ids) > 1:
        raise _BrokenPromiseError(f"one key has several receipts: {', '.join(sorted(ids))}")


def _shown(outcome: Outcome) -> str:
    return type(outcome).__name__ + ("" if isinstance(outcome, Receipt) else f"({outcome.code})")


_CHECKS: tuple[tuple[str, str, Callable[[_Run], Awaitable[None]]], ...] = (
    ("accepts", "accepted once, with a receipt", _accepts),
    ("tells_apart", "two effects, two receipts", _tells_apart),
    ("same_key_twice", "the same effect twice", _same_key_twice),
    ("resent_after_loss", "sent again after a lost answer, done once", _resent_after_loss),
    ("accept_then_hang", "accepts, then says nothing", _may_be_done("accept_then_hang")),
    ("accept_then_drip", "accepts, then answers too slowly", _may_be_done("accept_then_drip")),
    ("accept_then_reset", "resets the connection after the body", _may_be_done("accept_then_reset")),
    ("accept_then_close", "closes the connection after the body", _may_be_done("accept_then_close")),
    ("accept_then_503", "accepts, then answers 503", _may_be_done("accept_then_503")),
    ("accept_then_garbage", "accepts, with a receipt that cannot be read", _may_be_done("accept_then_garbage")),
    ("accept_then_oversized", "accepts, with an answer without end", _may_be_done("accept_then_oversized")),
    ("redirect", "accepts, then redirects elsewhere", _may_be_done("accept_as_303")),
    ("refuse", "refuses for good", _refused),
    ("rate_limited", "asks to wait", _limited),
    ("away", "is not there", _away),
    ("hang_before_reading", "connects and says nothing", _not_read),
    ("found_after_loss", "found again after a lost answer", _found_after_loss),
    ("not_found", "what was never sent is not found", _not_found),
    ("look_up_hang", "a look-up without answer", _unclear("accept_then_hang")),
    ("look_up_503", "a look-up answered 503", _unclear("accept_then_503")),
    ("look_up_garbage", "a look-up that cannot be read", _unclear("accept_then_garbage")),
)

CHECKS: tuple[str, ...] = tuple(name for name, _, _ in _CHECKS)
"""The names of all checks, in their order."""


async def conform(
    connector: Connector,
    provider: Provider,
    *,
    target: str,
    payload: Mapping[str, Any] | Callable[[str], Mapping[str, Any]],
    deadline_s: float = 1.0,
    tenant: str = "default",
    job_id: str | None = None,
) -> Report:
    """Run every check against one target of a connector. The connector is bound already; nothing here opens or closes it.

    `payload` is what each effect sends, or a function that makes it from the effect's id, for providers that can be counted
    only by what is in it. `deadline_s` is what each call is given; a check that hangs takes as long. `job_id` is the job that
    every effect says it is of, a made-up one by default. Raises ValueError where the plan itself is refused.
    """

    def make(effect_id: str) -> Mapping[str, Any]:
        return payload(effect_id) if callable(payload) else payload

    connector.check_target(target)
    connector.check_plan(target, make(str(uuid4())))
    run = _Run(connector, provider, target, make, deadline_s, tenant, job_id or str(uuid4()))
    checks: list[Check] = []
    for name, title, check in _CHECKS:
        mark: Mark = "passed"
        said = ""
        try:
            await check(run)
        except _BrokenPromiseError as error:
            mark, said = "failed", str(error)
        except _NotPlayedError as error:
            mark, said = "not played", str(error)
        checks.append(Check(name, title, mark, said))
    return Report(connector.name, target, run.capability, tuple(checks))
