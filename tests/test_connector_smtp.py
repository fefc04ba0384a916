"""Mail, phase by phase: what is surely not sent, what is refused, and what nobody can know."""

import asyncio
import email
import email.policy
import socket
import ssl
import subprocess
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from deedbox.connectors import ConnectorSettings, Email, Smtp, SmtpConfig
from deedbox.egress import EgressPolicy, dial
from deedbox.extend.connector import Ambiguous, Connector, EffectOrder, Outcome, Receipt, Refused, Transient
from tests.servers.smtp_server import Phase, SmtpServer

# CPython 3.11 forgets a StreamWriter of the test server whose handshake failed, and complains when it is collected,
# which may be in a later test.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")

LOOPBACK = EgressPolicy(frozenset({"127.0.0.1"}))
KEY = "0197f0a0-0000-7000-8000-000000000002"
TO = "ada@customer.example"
SHORT = 0.3


def order(payload: dict[str, Any] | None = None, *, target: str = TO, deadline_s: float = 5.0) -> EffectOrder:
    body = {"to": TO, "subject": "Your question", "body": "Hello\n"} | (payload or {})
    return EffectOrder(KEY, "job", "default", "smtp", target, "reply", body, 1, deadline_s)


def bound(server: SmtpServer, policy: EgressPolicy = LOOPBACK, **options: Any) -> Smtp:
    connector = Smtp()
    config = {"host": server.host, "port": server.port, "sender": "desk@house.example", "security": "none"} | options
    connector.bind(ConnectorSettings(smtp=SmtpConfig.model_validate(config)), policy)
    return connector


_LOOP: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {}


@pytest.fixture(params=["asyncio", "uvloop"])
def every_loop(request: pytest.FixtureRequest):
    """The transports of the two loops differ in what they are and in what they buffer."""
    if request.param == "uvloop":
        _LOOP["factory"] = pytest.importorskip("uvloop").new_event_loop
    yield
    _LOOP.clear()


def with_server(server: SmtpServer, story: Callable[[], Awaitable[None]]) -> None:
    async def main():
        async with server.running():
            await story()

    with asyncio.Runner(loop_factory=_LOOP.get("factory")) as runner:
        runner.run(asyncio.wait_for(main(), 20))


def send_once(server: SmtpServer, one: EffectOrder | None = None, **options: Any) -> Outcome:
    seen: list[Outcome] = []

    async def story():
        seen.append(await bound(server, **options).send(one or order()))

    with_server(server, story)
    return seen[0]


def test_it_is_a_connector_that_cannot_ask():
    smtp = Smtp()
    assert isinstance(smtp, Connector)
    assert smtp.capability(TO) == "blind"
    assert asyncio.run(smtp.look_up(order())).verdict == "still_unknown"


@pytest.mark.usefixtures("every_loop")
def test_a_mail_arrives_once_with_the_effects_id():
    server = SmtpServer()
    outcome = send_once(server)
    mail_id = f"<{KEY}@house.example>"
    assert outcome == Receipt(mail_id, {"code": 250, "reply": "queued as 4711"})
    (mail,) = server.mails
    assert mail.recipients == [TO]
    message = email.message_from_bytes(mail.data, policy=email.policy.default)
    assert message["Message-ID"] == mail_id
    assert message["From"] == "desk@house.example"
    assert message["To"] == TO
    assert message["Date"] is not None
    assert server.commands[0] == "EHLO house.example"


def test_any_script_and_any_dots_arrive_as_written():
    server = SmtpServer()
    body = "Grüße aus Köln\n.\n..\n. dot\n你好\n" + "x" * 3000 + "\n.\nこんにちは\n"
    subject = "Anfrage Nr. 7 — 你好 " * 10 + "!"
    payload = {"subject": subject, "body": body, "cc": ["bob@customer.example"], "reply_to": "team@house.example"}
    assert isinstance(send_once(server, order(payload), sender_name="Zoë, Desk"), Receipt)
    (mail,) = server.mails
    assert mail.data.isascii()
    message = email.message_from_bytes(mail.data, policy=email.policy.default)
    assert message["Subject"] == subject
    assert message["From"] == '"Zoë, Desk" <desk@house.example>'
    assert message["Cc"] == "bob@customer.example"
    assert message["Reply-To"] == "team@house.example"
    assert message.get_content().replace("\r\n", "\n") == body
    assert mail.recipients == [TO, "bob@customer.example"]


@pytest.mark.parametrize("phase", ["banner", "ehlo", "mail", "rcpt", "data"])
@pytest.mark.parametrize("fault", ["stall", "close", "garbage"])
def test_whatever_breaks_before_the_message_is_not_sent(phase: Phase, fault: str):
    server = SmtpServer({phase: fault})
    outcome = send_once(server, order(deadline_s=SHORT))
    assert isinstance(outcome, Transient)
    assert (outcome.failure_class, outcome.phase) == ("not_sent", phase)
    assert server.connections == 1
    assert not server.mails


@pytest.mark.usefixtures("every_loop")
@pytest.mark.parametrize("fault", ["stall", "close", "garbage", "354 go on", "100 hm"])
def test_an_end_after_the_final_dot_without_a_clear_answer_is_ambiguous(fault: str):
    server = SmtpServer({"dot": fault})
    outcome = send_once(server, order(deadline_s=SHORT))
    assert isinstance(outcome, Ambiguous)
    assert (outcome.phase, outcome.closed) == ("data_sent", True)
    assert server.connections == 1
    if fault in {"stall", "close"}:
        assert len(server.mails) == 1, "the server had taken it, so sending again would have been a second mail"


@pytest.mark.parametrize("phase", ["banner", "ehlo", "mail", "rcpt", "data", "dot"])
@pytest.mark.parametrize("reply", ["421 closing", "451 later"])
def test_a_4xx_anywhere_may_be_tried_again(phase: Phase, reply: str):
    server = SmtpServer({phase: reply})
    outcome = send_once(server)
    assert isinstance(outcome, Transient)
    assert (outcome.failure_class, outcome.code, outcome.phase) == (
        "not_sent",
        f"smtp_{reply[:3]}",
        "data_sent" if phase == "dot" else phase,
    )
    assert not server.mails


@pytest.mark.parametrize("phase", ["mail", "rcpt", "data", "dot"])
@pytest.mark.parametrize(("reply", "failure_class"), [("550 no such user", "caller_error"), ("530 log in first", "denied")])
def test_a_5xx_about_this_mail_is_a_refusal(phase: Phase, reply: str, failure_class: str):
    server = SmtpServer({phase: reply})
    outcome = send_once(server)
    assert isinstance(outcome, Refused)
    assert (outcome.failure_class, outcome.code) == (failure_class, f"smtp_{reply[:3]}")
    assert not server.mails


@pytest.mark.parametrize("phase", ["banner", "ehlo"])
def test_a_5xx_before_there_is_a_mail_speaks_of_the_server_and_may_be_tried_again(phase: Phase):
    outcome = send_once(SmtpServer({phase: "554 not today"}))
    assert isinstance(outcome, Transient)


@pytest.mark.usefixtures("every_loop")
def test_a_message_whose_end_never_left_is_not_sent_and_never_leaves_later(monkeypatch: pytest.MonkeyPatch):
    async def narrow(host: str, port: int, policy: EgressPolicy, deadline_s: float) -> socket.socket:
        sock = await dial(host, port, policy, deadline_s)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 8192)
        return sock

    # A real socket with a small buffer: the kernel cannot take the whole message while the server does not read.
    monkeypatch.setattr("deedbox.connectors.smtp.dial", narrow)
    server = SmtpServer({"body": "stall"}, receive_buffer=8192)

    async def story():
        outcome = await bound(server).send(order({"body": "你" * 199_000}, deadline_s=1.0))
        assert isinstance(outcome, Transient)
        assert (outcome.failure_class, outcome.phase) == ("not_sent", "data_part")
        server.released.set()
        await server.ended.wait()
        assert not server.mails

    with_server(server, story)


def test_nobody_gets_a_mail_when_one_of_its_recipients_is_refused():
    server = SmtpServer(refused_recipient="bob@customer.example")
    outcome = send_once(server, order({"cc": ["bob@customer.example"]}))
    assert isinstance(outcome, Refused)
    assert outcome.phase == "rcpt"
    assert not server.mails
    assert "DATA" not in server.commands


def test_nobody_gets_a_mail_when_one_of_its_recipients_has_to_be_tried_later():
    server = SmtpServer(refused_recipient="bob@customer.example", recipient_refusal="451 greylisted")
    outcome = send_once(server, order({"cc": ["bob@customer.example"]}))
    assert isinstance(outcome, Transient)
    assert (outcome.failure_class, outcome.phase) == ("not_sent", "rcpt")
    assert not server.mails
    assert "DATA" not in server.commands


def test_a_blocked_address_is_final_and_a_closed_port_may_be_tried_again():
    server = SmtpServer()

    async def story():
        blocked = await bound(server, EgressPolicy()).send(order())
        assert isinstance(blocked, Refused)
        assert (blocked.failure_class, blocked.code) == ("denied", "egress_blocked")
        assert server.connections == 0

    with_server(server, story)
    gone = asyncio.run(bound(server).send(order()))
    assert isinstance(gone, Transient)
    assert gone.phase == "connect"


def test_a_sending_that_is_cancelled_leaves_nothing_that_could_go_out_later():
    server = SmtpServer({"data": "stall"})

    async def story():
        sending = asyncio.create_task(bound(server).send(order()))
        await server.reached.wait()
        sending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await sending

    with_server(server, story)
    assert not server.mails


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[ssl.SSLContext, str]:
    """A server's context with a certificate of its own making for 127.0.0.1, and the file to trust."""
    folder = tmp_path_factory.mktemp("tls")
    key, crt = folder / "key.pem", folder / "crt.pem"
    made = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]
    made += ["-subj", "/CN=test", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(crt)]
    try:
        subprocess.run(made, check=True, capture_output=True)
    except FileNotFoundError:
        pytest.skip("no openssl on this machine to make a certificate with")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(crt, key)
    return context, str(crt)


@pytest.mark.usefixtures("every_loop")
@pytest.mark.parametrize("security", ["starttls", "tls"])
def test_tls_with_a_login(security: str, certificate: tuple[ssl.SSLContext, str]):
    context, trusted = certificate
    login: dict[str, Any] = {"security": security, "ca_file": trusted, "username": "desk", "password": "hush"}
    # RFC 4616: base64 of NUL desk NUL hush
    server = SmtpServer(tls=context, implicit_tls=security == "tls", password=b"AGRlc2sAaHVzaA==")
    assert isinstance(send_once(server, **login), Receipt)
    assert len(server.mails) == 1
    wrong = SmtpServer(tls=context, implicit_tls=security == "tls", password=b"another")
    outcome = send_once(wrong, **login)
    assert isinstance(outcome, Refused)
    assert (outcome.failure_class, outcome.phase) == ("denied", "auth")
    assert "hush" not in repr(outcome)


@pytest.mark.usefixtures("every_loop")
@pytest.mark.parametrize("security", ["starttls", "tls"])
@pytest.mark.parametrize("fault", ["stall", "close"])
def test_the_final_dot_over_tls(security: str, fault: str, certificate: tuple[ssl.SSLContext, str]):
    context, trusted = certificate
    server = SmtpServer({"dot": fault}, tls=context, implicit_tls=security == "tls")
    outcome = send_once(server, order(deadline_s=1.0), security=security, ca_file=trusted)
    assert isinstance(outcome, Ambiguous)
    assert outcome.phase == "data_sent"


@pytest.mark.parametrize("security", ["starttls", "tls"])
def test_a_certificate_that_is_not_trusted_stops_before_anything_is_said(
    security: str, certificate: tuple[ssl.SSLContext, str]
):
    server = SmtpServer(tls=certificate[0], implicit_tls=security == "tls")
    outcome = send_once(server, security=security)
    assert isinstance(outcome, Transient)
    assert outcome.phase == security
    assert not any(command.startswith("MAIL") for command in server.commands)


@pytest.mark.parametrize("security", ["starttls", "tls"])
@pytest.mark.parametrize("phase", ["banner", "ehlo", "starttls", "auth", "mail", "rcpt", "data"])
@pytest.mark.parametrize("fault", ["stall", "close", "reset", "451 later"])
def test_whatever_breaks_before_the_message_is_not_sent_over_tls_either(
    security: str, phase: Phase, fault: str, certificate: tuple[ssl.SSLContext, str]
):
    if (security, phase) == ("tls", "starttls"):
        return
    context, trusted = certificate
    login: dict[str, Any] = {"security": security, "ca_file": trusted, "username": "desk", "password": "hush"}
    server = SmtpServer({phase: fault}, tls=context, implicit_tls=security == "tls", password=b"AGRlc2sAaHVzaA==")
    outcome = send_once(server, order(deadline_s=0.6), **login)
    assert isinstance(outcome, Transient)
    # With TLS from the start, the banner comes only after the handshake, and counts as part of it.
    assert (outcome.failure_class, outcome.phase) == ("not_sent", "tls" if (security, phase) == ("tls", "banner") else phase)
    assert server.connections == 1
    assert not server.mails
    assert "hush" not in repr(outcome)


def test_a_handshake_that_never_begins_is_bounded_and_not_sent(certificate: tuple[ssl.SSLContext, str]):
    server = SmtpServer({"banner": "stall"})
    outcome = send_once(server, order(deadline_s=SHORT), security="tls", ca_file=certificate[1])
    assert isinstance(outcome, Transient)
    assert (outcome.failure_class, outcome.phase) == ("not_sent", "tls")


@pytest.mark.parametrize("security", ["starttls", "tls"])
def test_a_trusted_certificate_of_another_host_stops_before_anything_is_said(
    security: str, certificate: tuple[ssl.SSLContext, str]
):
    context, trusted = certificate
    server = SmtpServer(tls=context, implicit_tls=security == "tls")
    policy = EgressPolicy(frozenset({"localhost"}))
    outcome = send_once(server, policy=policy, host="localhost", security=security, ca_file=trusted)
    assert isinstance(outcome, Transient)
    assert outcome.phase == security
    assert not any(command.startswith(("MAIL", "AUTH")) for command in server.commands)


def test_a_server_that_does_not_offer_tls_gets_no_mail_in_the_clear():
    server = SmtpServer()
    outcome = send_once(server, security="starttls")
    assert isinstance(outcome, Transient)
    assert outcome.phase == "starttls"
    assert not any(command.startswith("MAIL") for command in server.commands)


@pytest.mark.parametrize(
    "payload",
    [
        {"subject": "a\r\nBcc: eve@evil.example"},
        {"subject": "a\nb"},
        {"subject": "a\x00"},
        {"subject": "a\u2028b"},
        {"subject": ""},
        {"subject": "x" * 301},
        {"subject": 7},
        {"subject": "\ud800"},
        {"body": ""},
        {"body": "a\x00b"},
        {"body": "\udfff"},
        {"body": "x" * 200_001},
        {"cc": ["eve@evil.example\r\nBcc: x@y.example"]},
        {"cc": "eve@evil.example"},
        {"cc": ["a@b.example"] * 51},
        {"reply_to": "Eve <eve@evil.example>"},
        {"to": []},
        {"bcc": ["eve@evil.example"]},
        {"headers": {"X": "y"}},
        {"sender": "boss@house.example"},
    ],
)
def test_a_mail_that_could_be_more_than_it_seems_is_refused_before_connecting(payload: dict[str, Any]):
    server = SmtpServer()
    outcome = send_once(server, order(payload))
    assert isinstance(outcome, Refused)
    assert outcome.code == "payload_invalid"
    assert server.connections == 0


def test_the_target_is_who_the_mail_goes_to():
    smtp = Smtp()
    with pytest.raises(ValueError, match="no mail server"):
        smtp.check_target(TO)
    smtp.bind(ConnectorSettings(smtp=SmtpConfig(host="mail.example", sender="a@b.example")), EgressPolicy())
    two = Email(to=[TO, "bob@customer.example"], subject="s", body="b")
    smtp.check_plan(f"{TO},bob@customer.example", two.model_dump())
    for target in (TO, "bob@customer.example", f"bob@customer.example,{TO}", "everyone", ""):
        with pytest.raises(ValueError, match=r"target|address"):
            smtp.check_plan(target, two.model_dump())
    server = SmtpServer()
    assert isinstance(send_once(server, order(target="eve@evil.example")), Refused)
    assert server.connections == 0


def test_without_a_server_nothing_is_sent():
    smtp = Smtp()
    smtp.bind(ConnectorSettings(), EgressPolicy())
    outcome = asyncio.run(smtp.send(order()))
    assert isinstance(outcome, Refused)
    assert outcome.code == "smtp_not_configured"
