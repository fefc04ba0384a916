"""Mail over SMTP, one command at a time, so that it is always known how far a sending got.

Everything before the last byte of the message is surely not sent: a server takes a mail over only after the final dot.
From that byte until the answer to it nobody knows, and the connector says so.
"""

import asyncio
import re
import socket
import ssl
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from email.utils import formatdate
from time import monotonic
from typing import Any, cast

from aiosmtplib import SMTP, SMTPException, SMTPResponseException
from pydantic import BaseModel

from deedbox.connectors.addresses import check_mail_address
from deedbox.connectors.mail import Email, compose, message_id
from deedbox.connectors.settings import ConnectorSettings, SmtpConfig
from deedbox.egress import EgressPolicy, EgressRefused, NotSent, dial
from deedbox.extend.connector import (
    Ambiguous,
    Capability,
    EffectOrder,
    LookUp,
    Outcome,
    Receipt,
    Refused,
    TargetLimits,
    Transient,
)
from deedbox.model.facts import EffectKind

_LINE_END = re.compile(rb"\r\n|\r|\n")
_AUTH_CODES = frozenset({530, 534, 535, 538})
_CODES = range(100, 600)
_TAKEN = range(200, 300)
_TRY_LATER = range(400, 500)
_PERMANENT = range(500, 600)
_START_INPUT = 354
_MAX_REPLY = 200  # characters kept of what a server says


@dataclass(slots=True)
class _Progress:
    """How far one sending got. `unsent` is what of the message was still on this side when it ended, in bytes."""

    phase: str = "connect"
    unsent: int = 0


class Smtp:
    """Sends plain text mail through the server named in settings. Capability: blind; SMTP cannot be asked afterwards."""

    payload_model: type[BaseModel] = Email
    kind: EffectKind = "message"

    def __init__(self, name: str = "smtp") -> None:
        """`name` is what `ctx.effect` calls it."""
        self.name = name
        self._config: SmtpConfig | None = None
        self._policy = EgressPolicy()
        self._tls: ssl.SSLContext | None = None

    def bind(self, settings: ConnectorSettings, egress: EgressPolicy) -> None:
        """Take the server from settings; without one every target is refused when an effect is planned.

        Raises OSError where `ca_file` cannot be read.
        """
        self._config = settings.smtp
        self._policy = egress
        if self._config is not None and self._config.security != "none":
            self._tls = ssl.create_default_context()
            if self._config.ca_file is not None:
                self._tls.load_verify_locations(self._config.ca_file)

    async def aclose(self) -> None:
        """Nothing stays open between sendings."""

    def check_target(self, target: str) -> None:
        """Raise ValueError unless the target is a plain address, or several joined by commas, and a server is set."""
        if self._config is None:
            raise ValueError(f"connector {self.name}: no mail server is set")
        for address in target.split(","):
            check_mail_address(address)

    def check_plan(self, target: str, payload: Mapping[str, Any]) -> None:
        """Raise ValueError where the target is not exactly who the mail is addressed to, or the mail cannot be sent."""
        self.check_target(target)
        if target.split(",") != Email.model_validate(dict(payload)).addressees:
            raise ValueError("target: must equal `to` (joined by commas where there are several)")

    def describe(self, target: str, payload: Mapping[str, Any]) -> str:  # noqa: ARG002 -- the protocol's signature
        """Who gets what, every recipient named."""
        mail = Email.model_validate(dict(payload))
        copies = f", with a copy to {', '.join(mail.cc)}" if mail.cc else ""
        return f"Sends a mail with the subject “{mail.subject}” to {', '.join(mail.addressees)}{copies}."

    def announcement(self, target: str, subject: str, body: str) -> dict[str, Any]:
        """A plain mail to the target."""
        return {"to": target, "subject": subject, "body": body}

    def capability(self, target: str) -> Capability:  # noqa: ARG002 -- the protocol's signature
        """Always blind."""
        return "blind"

    def can_be_asked(self, target: str) -> bool:  # noqa: ARG002 -- what a connector may declare
        """Never."""
        return False

    def kept_under(self, target: str) -> str:  # noqa: ARG002 -- what a connector may declare
        """All mail goes through one server: its failures and its rate are those of all targets together."""
        return "*"

    def leads_to(self, target: str) -> tuple[str, int] | None:  # noqa: ARG002 -- all mail goes through one server
        """The mail server."""
        return None if self._config is None else (self._config.host, self._config.port)

    def limits(self) -> dict[str, TargetLimits]:
        """What settings say of how fast the server is sent to."""
        config = self._config
        return {} if config is None else {"*": TargetLimits(config.rate_per_s, config.burst, config.order_by)}

    async def look_up(self, order: EffectOrder) -> LookUp:  # noqa: ARG002 -- the protocol's signature
        """A mail server cannot be asked what it took."""
        return LookUp("still_unknown")

    async def send(self, order: EffectOrder) -> Outcome:
        """Hand one mail over, within `order.deadline_s` seconds, on a connection of its own."""
        config = self._config
        if config is None:
            return Refused("caller_error", "smtp_not_configured", "No mail server is set.", "plan")
        try:
            self.check_plan(order.target, order.payload)
            mail = Email.model_validate(dict(order.payload))
        except ValueError:  # pydantic's ValidationError is one
            return Refused("caller_error", "payload_invalid", "The mail is not one that can be sent.", "plan")
        # formatdate reads the wall clock: for the Date header alone, where it decides nothing.
        body = compose(mail, config, effect_id=order.effect_id, date=formatdate())
        until = monotonic() + order.deadline_s
        try:
            sock = await dial(config.host, config.port, self._policy, order.deadline_s)
        except EgressRefused as error:
            return Refused(error.failure_class, error.code, error.message, "connect")
        except NotSent as error:
            return Transient("not_sent", error.code, error.message, error.phase)
        return await self._hand_over(sock, config, mail, body, message_id(order.effect_id, config.domain), until)

    async def _hand_over(
        self, sock: socket.socket, config: SmtpConfig, mail: Email, body: bytes, mail_id: str, until: float
    ) -> Outcome:
        """One whole conversation on a connected socket, and what its end means. `until` is of the monotonic clock."""
        client = SMTP(
            hostname=config.host,
            sock=sock,
            local_hostname=config.domain,
            use_tls=config.security == "tls",
            start_tls=False,
            tls_context=self._tls,
            timeout=None,  # one deadline over all commands, below
        )
        progress = _Progress()
        try:
            async with asyncio.timeout(until - monotonic()):
                code, reply = await self._converse(client, config, mail, body, progress)
        except SMTPResponseException as error:
            return _answered(error.code, error.message, progress)
        except TimeoutError:
            return _broken("smtp_deadline", "The mail server did not answer in time", progress)
        except (SMTPException, OSError):
            return _broken("smtp_connection", "The connection to the mail server failed", progress)
        finally:
            client.close()
        if code not in _TAKEN or progress.unsent:
            return _answered(code, reply, progress)
        return Receipt(mail_id, {"code": code, "reply": _plain(reply)})

    async def _converse(
        self, client: SMTP, config: SmtpConfig, mail: Email, body: bytes, progress: _Progress
    ) -> tuple[int, str]:
        """Every command in order; the answer to the final dot. Raises what aiosmtplib raises."""
        progress.phase = "tls" if config.security == "tls" else "banner"
        await client.connect()
        progress.phase = "ehlo"
        await client.ehlo()
        if config.security == "starttls":
            progress.phase = "starttls"
            await client.starttls()
            await client.ehlo()
        if config.username is not None and config.password is not None:
            progress.phase = "auth"
            await client.login(config.username, config.password.get_secret_value())
        progress.phase = "mail"
        await client.mail(config.sender)
        progress.phase = "rcpt"
        for recipient in mail.recipients:
            # One refused recipient ends it: an approved mail goes to exactly the people on the card, or to nobody.
            await client.rcpt(recipient)
        progress.phase = "data"
        code, reply = await client.execute_command(b"DATA")
        if code != _START_INPUT:
            raise SMTPResponseException(code, reply)
        return await _transmit(client, body, progress)


async def _transmit(client: SMTP, body: bytes, progress: _Progress) -> tuple[int, str]:
    """Write the message with its final dot and wait for the answer, noting what never left this side."""
    if client.protocol is None or client.transport is None:
        raise SMTPException("the connection was lost")
    # Not checked by isinstance: uvloop's transports write, but are no subclass of asyncio's.
    protocol, transport = client.protocol, cast("asyncio.WriteTransport", client.transport)
    lines = _LINE_END.split(body.removesuffix(b"\r\n"))
    wire = b"\r\n".join(b"." + line if line.startswith(b".") else line for line in lines) + b"\r\n.\r\n"
    protocol.write(wire)
    progress.phase = "data_sent"
    done = False
    try:
        code, reply = await protocol.read_response()
        done = True
    finally:
        # What is still buffered here includes the final dot, without which no server takes the mail over. It must not
        # leave later either: an ordinary close would flush it, so the connection is aborted.
        progress.unsent = transport.get_write_buffer_size()
        if not done or progress.unsent:
            transport.abort()
    with suppress(SMTPException, OSError):
        # Courtesy only: the answer to QUIT changes nothing and is not waited for.
        protocol.write(b"QUIT\r\n")
    return code, reply


def _answered(code: int, reply: str, progress: _Progress) -> Outcome:
    """What a reply other than success means where it came."""
    stable = f"smtp_{code}" if code in _CODES else "smtp_unreadable"
    said = f"The mail server answered {code} ({_plain(reply)}) at {progress.phase}."
    if progress.phase in {"tls", "banner", "ehlo", "starttls"} or code in _TRY_LATER:
        # Before MAIL even a 5xx speaks about the server's state and not about this mail.
        return Transient("not_sent", stable, said, progress.phase)
    if code in _PERMANENT:
        denied = progress.phase == "auth" or code in _AUTH_CODES
        return Refused("denied" if denied else "caller_error", stable, said, progress.phase)
    if progress.phase == "data_sent":
        return Ambiguous(stable, said, progress.phase)
    return Transient("not_sent", stable, said, progress.phase)


def _broken(code: str, what: str, progress: _Progress) -> Outcome:
    """What an end without a reply means where it came."""
    if progress.phase != "data_sent":
        return Transient("not_sent", code, f"{what} at {progress.phase}.", progress.phase)
    if progress.unsent:
        return Transient("not_sent", code, f"{what} before the message had left.", "data_part")
    return Ambiguous(code, f"{what} after the message had left.", progress.phase)


def _plain(text: str) -> str:
    """A server's words in one printable line, cut."""
    return "".join(char if char.isprintable() else " " for char in text)[:_MAX_REPLY].strip()
