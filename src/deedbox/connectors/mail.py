"""The mail a handler may plan, and the bytes that become of it."""

import hashlib
import re
from email.headerregistry import Address
from email.message import EmailMessage
from email.policy import SMTP
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, field_validator

from deedbox.connectors.addresses import check_mail_address
from deedbox.connectors.settings import SmtpConfig

# 7bit: everything outside ASCII is encoded, so that no server needs 8BITMIME. raise_on_defect: nothing odd leaves.
_POLICY = SMTP.clone(cte_type="7bit", raise_on_defect=True)
_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff]")
_IN_SUBJECT = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
MAX_RECIPIENTS = 50

Text = Annotated[str, StringConstraints(strict=True)]


class Email(BaseModel):
    """A plain text mail. The effect's target is the recipient, or all of `to` joined by commas.

    Sender, credentials and server come from settings. Addresses are plain `name@domain`; subject and body may be in
    any script. The order of the fields is the order in which an approver reads them: everyone it reaches before what it says.
    """

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)

    to: Annotated[Text, Field(max_length=254)] | Annotated[list[Text], Field(min_length=1, max_length=MAX_RECIPIENTS)]
    cc: Annotated[list[Text], Field(max_length=MAX_RECIPIENTS)] = Field(default_factory=list)
    reply_to: Annotated[Text | None, Field(title="Reply-To")] = None
    subject: Annotated[Text, Field(min_length=1, max_length=300)]
    body: Annotated[Text, Field(min_length=1, max_length=200_000)]

    @field_validator("to", "cc")
    @classmethod
    def _addresses(cls, value: str | list[str]) -> str | list[str]:
        for address in [value] if isinstance(value, str) else value:
            check_mail_address(address)
        return value

    @field_validator("reply_to")
    @classmethod
    def _reply_address(cls, value: str | None) -> str | None:
        return None if value is None else check_mail_address(value)

    @field_validator("subject")
    @classmethod
    def _one_line(cls, value: str) -> str:
        if _IN_SUBJECT.search(value):
            raise ValueError("a subject is one line without control characters")
        return value

    @field_validator("body")
    @classmethod
    def _plain_text(cls, value: str) -> str:
        if _CONTROL.search(value):
            raise ValueError("a body has no control characters but line ends and tabs")
        return value

    @property
    def addressees(self) -> list[str]:
        """Who it is addressed to, as a list."""
        return [self.to] if isinstance(self.to, str) else list(self.to)

    @property
    def recipients(self) -> list[str]:
        """Everyone it goes to, each once, in order."""
        return list(dict.fromkeys([*self.addressees, *self.cc]))


def message_id(effect_id: str, domain: str) -> str:
    """The Message-ID of an effect: the same for every sending, so that a mailbox can be asked for it."""
    # An id that is not plain is hashed, never quoted: quoted forms of Message-ID are mangled on the way.
    left = effect_id if _ID.fullmatch(effect_id) else hashlib.sha256(effect_id.encode()).hexdigest()
    return f"<{left}@{domain}>"


def compose(mail: Email, config: SmtpConfig, *, effect_id: str, date: str) -> bytes:
    """The message as it travels, with CRLF line ends. `date` is an RFC 5322 date."""
    message = EmailMessage(policy=_POLICY)
    message["From"] = Address(config.sender_name or "", addr_spec=config.sender)
    message["To"] = [Address("", addr_spec=address) for address in mail.addressees]
    if mail.cc:
        message["Cc"] = [Address("", addr_spec=address) for address in mail.cc]
    if mail.reply_to is not None:
        message["Reply-To"] = Address("", addr_spec=mail.reply_to)
    message["Subject"] = mail.subject
    message["Date"] = date
    message["Message-ID"] = message_id(effect_id, config.domain)
    # RFC 3834: nobody's holiday notice should answer a program.
    message["Auto-Submitted"] = "auto-generated"
    message.set_content(mail.body, charset="utf-8")
    return message.as_bytes()
