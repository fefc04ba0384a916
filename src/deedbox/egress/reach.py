"""What would happen if a host were dialled: its addresses, and which rule opens or shuts each. Nothing is dialled."""

import asyncio
from dataclasses import dataclass

from deedbox.egress.address import Address, EgressPolicy, check_address, denied_range, parse_host
from deedbox.egress.dial import addresses_of
from deedbox.egress.failures import EgressRefused, NotSent


@dataclass(frozen=True, slots=True)
class Seen:
    """One address of a host: whether it may be dialled, and the rule that says so."""

    address: str
    open: bool
    rule: str


@dataclass(frozen=True, slots=True)
class Reach:
    """Whether a host may be dialled at a port, with every address that it has now; `message` says it in a sentence."""

    host: str
    port: int
    open: bool
    message: str
    addresses: tuple[Seen, ...] = ()


async def reach(host: str, port: int, policy: EgressPolicy, *, deadline_s: float) -> Reach:
    """Resolve a host and judge each of its addresses as the dialler would, within `deadline_s` seconds. Raises nothing."""
    try:
        parsed = parse_host(host)
    except EgressRefused as error:
        return Reach(host, port, open=False, message=error.message)
    if not isinstance(parsed, str):
        return _judged(str(parsed), port, None, (parsed,), policy)
    try:
        async with asyncio.timeout(deadline_s):
            found = await addresses_of(parsed, port)
    except TimeoutError:
        return Reach(parsed, port, open=False, message=f"The host {parsed} was not resolved in {deadline_s:g} s.")
    except (EgressRefused, NotSent) as error:
        return Reach(parsed, port, open=False, message=error.message)
    return _judged(parsed, port, parsed, found, policy)


def _judged(shown: str, port: int, name: str | None, found: tuple[Address, ...], policy: EgressPolicy) -> Reach:
    seen = tuple(_seen(ip, name, port, policy) for ip in found)
    shut = [one for one in seen if not one.open]
    if shut:
        # One shut answer shuts the host.
        return Reach(shown, port, open=False, message=f"Refused: {shut[0].address} is {shut[0].rule}.", addresses=seen)
    return Reach(shown, port, open=True, message="It may be dialled.", addresses=seen)


def _seen(ip: Address, name: str | None, port: int, policy: EgressPolicy) -> Seen:
    denied = denied_range(ip)
    try:
        check_address(ip, policy, host=name, port=port)
    except EgressRefused:
        return Seen(str(ip), open=False, rule=f"in a {denied[0]} range" if denied else "refused")
    return Seen(str(ip), open=True, rule="public" if denied is None else f"in a {denied[0]} range, and on the allow list")
