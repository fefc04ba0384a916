"""What a mail may be, and what its server's settings may be, before anything is sent."""

from typing import Any

import pytest
from pydantic import ValidationError

from deedbox.connectors import Email, Smtp, SmtpConfig
from deedbox.connectors.addresses import check_mail_address
from deedbox.connectors.mail import message_id

TO = "ada@customer.example"


@pytest.mark.parametrize(
    "address",
    [
        "",
        "ada",
        "@b.example",
        "a@",
        "a@b@c.example",
        "Ada <a@b.example>",
        "<a@b.example>",
        '"a b"@c.example',
        "a b@c.example",
        "a@b.example,c@d.example",
        "a@b.example;c@d.example",
        "a@[127.0.0.1]",
        "a@127.0.0.1",
        "a..b@c.example",
        ".a@c.example",
        "a@-c.example",
        "a@c..example",
        "a@c.example.",
        "a(x)@c.example",
        "a@c.example\n",
        "ä@c.example",
        "a@ü.example",
        "a" * 65 + "@c.example",
        "a@" + "c" * 64 + ".example",
        "a@" + "c." * 130 + "example",
    ],
)
def test_an_address_is_plain_or_it_is_none(address: str):
    with pytest.raises(ValueError, match="mail address"):
        check_mail_address(address)


@pytest.mark.parametrize(
    "address", ["a@b.example", "a.b+c@d-e.example", "o'neil@x.example", "root@localhost", "a@xn--bcher-kva.example"]
)
def test_plain_addresses_pass(address: str):
    assert check_mail_address(address) == address


def test_the_card_names_every_recipient():
    mail = Email(to=[TO, "bob@customer.example"], subject="Hi", body="b", cc=["eve@customer.example"])
    assert Smtp().describe("", mail.model_dump()) == (
        f"Sends a mail with the subject “Hi” to {TO}, bob@customer.example, with a copy to eve@customer.example."
    )


@pytest.mark.parametrize(
    "wrong",
    [
        {"host": "127.1"},
        {"host": "a b"},
        {"port": 0},
        {"sender": "Desk <a@b.example>"},
        {"sender_name": "a\r\nBcc: x"},
        {"username": "u"},
        {"password": "p"},
        {"security": "none", "username": "u", "password": "p"},
        {"security": "maybe"},
        {"message_domain": "a>b"},
        {"typo": 1},
    ],
)
def test_a_mail_server_that_is_set_wrongly_does_not_start(wrong: dict[str, Any]):
    with pytest.raises(ValidationError):
        SmtpConfig.model_validate({"host": "mail.example", "sender": "a@b.example"} | wrong)


def test_the_message_id_is_the_effects_and_never_breaks_its_header():
    assert message_id("0197-ab", "house.example") == "<0197-ab@house.example>"
    odd = message_id("a>\r\nBcc: eve@evil.example", "house.example")
    assert odd == message_id("a>\r\nBcc: eve@evil.example", "house.example")
    assert odd.isascii()
    assert odd.isprintable()
    assert odd.count(">") == 1
