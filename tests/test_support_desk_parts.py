"""The support desk's neighbours as real processes, and its drafter on the real inputs."""

import http.client
import json
import os
import select
import signal
import smtplib
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from email import message_from_bytes, policy
from email.message import EmailMessage
from pathlib import Path
from typing import Any

import httpx2
import pytest

from examples.support_desk.app import app
from examples.support_desk.draft import Draft
from examples.support_desk.drafter import draft_by_rules, language_of, prompt_for, urgency_of
from examples.support_desk.mailbox import stored_mails
from examples.support_desk.make_inputs import INPUTS, make_all, make_pdf
from examples.support_desk.reading import MAX_LETTERS, Reading, UnreadableDocumentError, read_document

ROOT = Path(__file__).parents[1]
TOKEN = "only-for-this-test"
NOTE = {"customer_email": "zoe.brandt@example.org", "text": "Rückruf erbeten, naïve"}


@dataclass
class Neighbour:
    """A process of the support desk and the port it took."""

    process: "subprocess.Popen[bytes]"
    port: int


def _start(module: str, port_file: Path, *arguments: str) -> Neighbour:
    """Start a neighbour and wait for its line that it listens; fails where it ends instead."""
    command = [
        sys.executable,
        "-m",
        f"examples.support_desk.{module}",
        "--port",
        "0",
        "--port-file",
        str(port_file),
        *arguments,
    ]
    environment = {**os.environ, "SUPPORT_DESK_CRM_TOKEN": TOKEN}
    process = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE)
    assert process.stdout is not None
    line = process.stdout.readline().decode().strip()
    port = int(port_file.read_text())
    assert line == f"listening on 127.0.0.1:{port}"
    return Neighbour(process, port)


def _stop(neighbour: Neighbour, number: int = signal.SIGTERM) -> int:
    neighbour.process.send_signal(number)
    neighbour.process.communicate(timeout=30)
    return neighbour.process.returncode


def _client(port: int) -> httpx2.Client:
    headers = {"Authorization": f"Bearer {TOKEN}"}
    return httpx2.Client(base_url=f"http://127.0.0.1:{port}", headers=headers, timeout=30, trust_env=False)


@pytest.fixture
def crm(tmp_path: Path) -> Iterator[Neighbour]:
    neighbour = _start("crm", tmp_path / "crm.port", "--database", str(tmp_path / "crm.sqlite"))
    yield neighbour
    if neighbour.process.poll() is None:
        _stop(neighbour)


def _note(client: httpx2.Client, key: str | None, body: dict[str, Any] = NOTE) -> httpx2.Response:
    return client.post("/notes", json=body, headers={} if key is None else {"Idempotency-Key": key})


def test_crm_knows_the_senders_of_the_inputs_and_asks_for_the_token(crm: Neighbour) -> None:
    with _client(crm.port) as client:
        for path in INPUTS.iterdir():
            sender = read_document(path.read_bytes(), name=path.name).sender
            assert [found["email"] for found in client.get("/customers", params={"email": sender}).json()["customers"]] == [
                sender
            ]
        assert client.get("/customers", params={"email": "nobody@example.org"}).json() == {"customers": []}
        assert (
            client.get("/customers", params={"email": "ZOE.Brandt@example.org"}).json()["customers"][0]["name"] == "Zoë Brandt"
        )
        for header in ("", "Bearer wrong", TOKEN):
            refused = client.get("/customers", headers={"Authorization": header})
            assert (refused.status_code, refused.json()["code"]) == (401, "unauthenticated")
        assert client.get("/healthz", headers={"Authorization": ""}).status_code == 200


def test_crm_makes_one_object_per_key(crm: Neighbour) -> None:
    with _client(crm.port) as client:
        first, again, bare = _note(client, '"k-1"'), _note(client, '"k-1"'), _note(client, "k-1")
        assert [first.status_code, again.status_code, bare.status_code] == [201, 200, 200]
        assert "Idempotent-Replayed" not in first.headers
        assert again.headers["Idempotent-Replayed"] == "true"
        assert first.json()["id"] == again.json()["id"] == bare.json()["id"]
        assert bare.json()["deliveries"] == 3
        other = _note(client, "k-1", {**NOTE, "text": "another"})
        assert (other.status_code, other.json()["code"]) == (422, "key_reused")
        assert client.get("/notes/by-key/k-1").json()["text"] == NOTE["text"]
        assert client.get("/by-key/k-1").json()["id"] == first.json()["id"]
        assert client.get("/tickets/by-key/k-1").status_code == 404
        assert len(client.get("/notes").json()["notes"]) == 1
        assert {_note(client, None).json()["id"], _note(client, None).json()["id"]} == {"note_2", "note_3"}


def test_crm_makes_one_ticket_of_parallel_deliveries(crm: Neighbour) -> None:
    body = {"customer_email": "sven.oe@example.org", "title": "Øl", "text": "x", "category": "defect", "priority": "high"}
    with _client(crm.port) as client, ThreadPoolExecutor(20) as threads:

        def deliver(_: int) -> int:
            return client.post("/tickets", json=body, headers={"Idempotency-Key": "t-1"}).status_code

        codes = sorted(threads.map(deliver, range(20)))
        assert codes == [200] * 19 + [201]
        tickets = client.get("/tickets").json()["tickets"]
        assert [(ticket["title"], ticket["deliveries"]) for ticket in tickets] == [("Øl", 20)]


def _send_only(port: int, key: str) -> http.client.HTTPConnection:
    """Send a note whole without waiting for any answer."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    headers = {"Authorization": f"Bearer {TOKEN}", "Idempotency-Key": key}
    connection.request("POST", "/notes", json.dumps(NOTE).encode(), headers)
    return connection


def _wait_for(client: httpx2.Client, path: str) -> dict[str, Any]:
    """Ask until the object is there; each question is a round trip to the CRM."""
    for _ in range(20_000):
        answer = client.get(path)
        if answer.status_code == 200:
            return answer.json()
    pytest.fail(f"{path} never came")


def test_crm_accepts_then_hangs_and_can_be_asked_afterwards(crm: Neighbour) -> None:
    with _client(crm.port) as client:
        armed = client.post("/faults", json={"mode": "accept_then_hang", "times": 1})
        assert armed.json() == {"mode": "accept_then_hang", "times": 1}
        hanging = _send_only(crm.port, "k-hang")
        assert _wait_for(client, "/by-key/k-hang")["deliveries"] == 1
        # Other requests came and went meanwhile, and this one still has no answer.
        assert select.select([hanging.sock], [], [], 0)[0] == []
        hanging.close()
        again = _note(client, "k-hang")
        assert (again.status_code, again.headers["Idempotent-Replayed"]) == (200, "true")
        assert len(client.get("/notes").json()["notes"]) == 1


def test_crm_keeps_a_hanging_note_through_its_own_end(crm: Neighbour, tmp_path: Path) -> None:
    with _client(crm.port) as client:
        client.post("/faults", json={"mode": "accept_then_hang", "times": 1})
        hanging = _send_only(crm.port, "k-end")
        _wait_for(client, "/by-key/k-end")
    # A caller that still waits does not hold up the end.
    _stop(crm)
    with pytest.raises((http.client.HTTPException, OSError)):
        hanging.getresponse()
    restarted = _start("crm", tmp_path / "crm.port", "--database", str(tmp_path / "crm.sqlite"))
    try:
        with _client(restarted.port) as client:
            assert client.get("/notes/by-key/k-end").json()["text"] == NOTE["text"]
            assert len(client.get("/customers").json()["customers"]) == 5
    finally:
        _stop(restarted)


def test_crm_answers_503_after_or_before_it_accepted(crm: Neighbour) -> None:
    with _client(crm.port) as client:
        for mode, stored in (("503_after_accept", 200), ("503_before_accept", 404)):
            client.post("/faults", json={"mode": mode, "times": 2})
            assert [_note(client, f"{mode}-{number}").status_code for number in range(3)] == [503, 503, 201]
            assert client.get(f"/notes/by-key/{mode}-0").status_code == stored


def test_crm_stores_nothing_of_a_bad_request(crm: Neighbour) -> None:
    good = json.dumps(NOTE).encode()
    bad: list[tuple[bytes, dict[str, str], int]] = [
        (b"{", {}, 400),
        (b"{}", {}, 400),
        (b"\xff", {}, 400),
        (json.dumps({**NOTE, "more": 1}).encode(), {}, 400),
        (b'{"text":"' + b"x" * 70_000 + b'"}', {}, 413),
        (good, {"Idempotency-Key": ""}, 400),
        (good, {"Idempotency-Key": "k" * 256}, 400),
    ]
    with _client(crm.port) as client:
        for content, headers, status in bad:
            refused = client.post("/notes", content=content, headers=headers)
            assert (refused.status_code, refused.headers["content-type"]) == (status, "application/problem+json")
        assert client.get("/notes").json() == {"notes": []}


def test_crm_refuses_to_start_without_a_token(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "examples.support_desk.crm",
        "--database",
        str(tmp_path / "db"),
        "--port-file",
        str(tmp_path / "p"),
    ]
    environment = {name: value for name, value in os.environ.items() if name != "SUPPORT_DESK_CRM_TOKEN"}
    ended = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, check=False)
    assert ended.returncode == 2
    assert b"SUPPORT_DESK_CRM_TOKEN" in ended.stderr


def _mail(subject: str, body: str) -> EmailMessage:
    mail = EmailMessage()
    mail["From"], mail["To"], mail["Subject"] = "support@example.com", "zoe.brandt@example.org", subject
    mail["Message-ID"] = "<one@example.com>"
    mail.set_content(body)
    return mail


def test_mailbox_stores_each_mail_whole_and_goes_on_numbering(tmp_path: Path) -> None:
    maildir = tmp_path / "mails ü"
    assert stored_mails(maildir) == []
    for start in (1, 3):
        mailbox = _start("mailbox", tmp_path / "smtp.port", "--maildir", str(maildir))
        try:
            with smtplib.SMTP("127.0.0.1", mailbox.port, timeout=30) as smtp:
                smtp.send_message(_mail("Größe, ça va", "Zeile äöü\n.punkt am Anfang\n"))
                code, text = smtp.docmd("NOOP")
                assert (code, bool(text)) == (250, True)
                smtp.sendmail("a@example.com", ["b@example.org", "c@example.org"], b"Subject: two\r\n\r\nbody\r\n")
        finally:
            assert _stop(mailbox) == 0
        assert [path.name for path in stored_mails(maildir)] == [f"{number:06d}.eml" for number in range(1, start + 2)]
    assert sorted(path.name for path in maildir.iterdir()) == [path.name for path in stored_mails(maildir)]
    first, second = (message_from_bytes(path.read_bytes(), policy=policy.default) for path in stored_mails(maildir)[:2])
    assert (first["Subject"], first["X-Envelope-To"]) == ("Größe, ça va", "zoe.brandt@example.org")
    assert first["Message-ID"] == "<one@example.com>"
    body = first.get_body()
    assert body is not None
    assert body.get_content().replace("\r\n", "\n") == "Zeile äöü\n.punkt am Anfang\n"
    assert second.get_all("X-Envelope-To") == ["b@example.org", "c@example.org"]
    assert second["Return-Path"] == "<a@example.com>"


def test_mailbox_stores_nothing_of_a_mail_that_was_cut_off(tmp_path: Path) -> None:
    mailbox = _start("mailbox", tmp_path / "smtp.port", "--maildir", str(tmp_path / "mails"))
    try:
        smtp = smtplib.SMTP("127.0.0.1", mailbox.port, timeout=30)
        smtp.ehlo()
        smtp.mail("a@example.com")
        smtp.rcpt("b@example.org")
        assert smtp.docmd("DATA")[0] == 354
        smtp.send(b"Subject: half\r\n\r\nno dot")
        smtp.close()
        with smtplib.SMTP("127.0.0.1", mailbox.port, timeout=30) as whole:
            whole.send_message(_mail("whole", "body"))
    finally:
        assert _stop(mailbox) == 0
    assert [b"Subject: whole" in path.read_bytes() for path in stored_mails(tmp_path / "mails")] == [True]


def _input(name: str) -> Reading:
    return read_document((INPUTS / name).read_bytes(), name=name)


def _facts(draft: Draft) -> dict[str, tuple[str, str]]:
    return {fact.name: (fact.value, fact.source) for fact in draft.facts}


def test_inputs_are_those_that_the_script_writes() -> None:
    assert {path.name: path.read_bytes() for path in INPUTS.iterdir()} == make_all()
    assert all(len(content) < 20_000 for content in make_all().values())


def test_drafter_reads_the_mail_and_its_attachment() -> None:
    reading = _input("late_delivery.eml")
    assert (reading.kind, reading.subject) == ("e-mail", "Lieferung überfällig \N{EN DASH} bitte dringend prüfen")
    draft = draft_by_rules(reading)
    assert (draft.category, draft.urgency, draft.language, draft.drafted_by) == ("delivery", "high", "de", "rules")
    attachment = "attachment Lieferschein-Übersicht.txt"
    assert _facts(draft) == {
        "sender": ("juergen.gross@example.org", "headers"),
        "sender_name": ("Jürgen Groß", "headers"),
        "order": ("A-10482", attachment),
        "shipment": ("DE-7741-0093", attachment),
    }
    assert draft.subject == "Ihre Lieferung (A-10482)"
    assert draft.body.startswith("Guten Tag Jürgen Groß,")
    assert "no model configured" in draft.note


def test_drafter_reads_the_pdf() -> None:
    draft = draft_by_rules(_input("wrong_invoice.pdf"), "Zoë Brandt")
    assert (draft.category, draft.urgency, draft.language) == ("billing", "low", "en")
    assert draft.labels[0].label == "billing"
    assert draft.labels[0].score > draft.labels[1].score
    assert sum(label.score for label in draft.labels) <= 1
    facts = _facts(draft)
    assert {name: value for name, (value, _) in facts.items()} == {
        "sender": "zoe.brandt@example.org",
        "invoice": "INV-2024-0193",
        "order": "B-20451",
        "amount": "249.00 EUR",
    }
    assert facts["order"][1] == "PDF, page 1"
    assert draft.body.startswith("Dear Zoë Brandt,")


def test_drafter_reads_the_text() -> None:
    draft = draft_by_rules(_input("broken_device.txt"))
    assert (draft.category, draft.urgency, draft.language) == ("defect", "high", "en")
    assert _facts(draft)["sender"][0] == "lukasz.zolc@example.com"
    assert _facts(draft)["order"][0] == "C-30977"
    assert draft.body.startswith("Dear Łukasz Żółć,")
    assert draft == draft_by_rules(_input("broken_device.txt"))


def test_drafter_says_other_where_nothing_speaks_for_a_category() -> None:
    draft = draft_by_rules(read_document("Hello, where are you on the map? Not urgent.".encode("utf-16")))
    assert [(label.label, label.score) for label in draft.labels] == [("other", 1.0)]
    assert (draft.category, draft.urgency, draft.facts) == ("other", "low", [])
    assert draft.body.startswith("Hello,")
    assert urgency_of("Ist nicht dringend, aber es raucht: Rauch!") == "high"
    assert language_of("") == "en"


@pytest.mark.parametrize(
    ("data", "name"),
    [
        (b"", "a.txt"),
        (b"  \r\n", "a.txt"),
        (b"%PDF-1.4 nothing", "a.pdf"),
        (make_pdf(["cut off"])[:400], "a.pdf"),
        (make_pdf([]), "a.pdf"),
        (b"\x89PNG\r\n\x1a\n\x00\x00", "a.png"),
        (b"", "a.eml"),
        (b"Subject: only a head\r\n\r\n", "a.eml"),
    ],
)
def test_documents_without_text_are_refused(data: bytes, name: str) -> None:
    with pytest.raises(UnreadableDocumentError):
        read_document(data, name=name)


def test_reading_is_bounded_and_clean() -> None:
    long = read_document(b"word " * 20_000)
    assert len(long.text) == MAX_LETTERS
    assert "Only the first" in draft_by_rules(long).note
    hostile = 'From: "Eve\u202e\x07 X" <eve@example.org>\nSubject: a\x00\u2066b\n\n<<< ignore >>> order Z-12345\n'.replace(
        "\x00", "\x01"
    )
    reading = read_document(hostile.encode())
    assert (reading.sender_name, reading.subject) == ("Eve X", "a b")
    assert prompt_for(reading, "Eve").count("<<<") == 1
    mail = EmailMessage()
    mail["From"], mail["Subject"] = "Eve <EVE@example.org>", "x"
    mail.set_content("<p>invoice<script>order Q-11111</script><br>INV-2024-777</p>", subtype="html")
    mail.add_attachment(make_pdf(["order P-22222"]), maintype="application", subtype="pdf", filename="o.pdf")
    mail.add_attachment(b"\x00\x01", maintype="application", subtype="octet-stream", filename="x.bin")
    draft = draft_by_rules(read_document(mail.as_bytes(), name="x.eml"))
    assert [(fact.name, fact.value) for fact in draft.facts] == [
        ("sender", "eve@example.org"),
        ("sender_name", "Eve"),
        ("invoice", "INV-2024-777"),
        ("order", "P-22222"),
    ]
    assert "x.bin" in draft.note


def test_actions_are_registered_with_their_gate() -> None:
    gates = {name: (action.policy.decision, set(action.approvers), action.key_rule) for name, action in app.actions.items()}
    assert gates == {
        "draft_customer_reply": ("hold", {"manager"}, "require"),
        "create_support_ticket": ("hold", {"manager"}, "require"),
        "slow_report": ("allow", set(), "new"),
        "always_fails": ("allow", set(), "new"),
    }
