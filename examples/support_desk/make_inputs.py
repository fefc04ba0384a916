"""Writes the example's inputs, byte for byte the same each time; `--check` only compares them with what is there.

The cases are invented, all addresses lie under example.org and example.com. The e-mail and the PDF are put together by
hand, so that no library's version changes a byte.
"""

import argparse
import base64
import quopri
import sys
from collections.abc import Sequence
from pathlib import Path

INPUTS = Path(__file__).parent / "inputs"
BOUNDARY = "=_support-desk-0001"

MAIL_BODY = """\
Guten Tag,

meine Espressomaschine sollte am 3. März kommen, heute ist der 14. – und sie ist immer noch nicht da.
Die Sendungsverfolgung zeigt seit neun Tagen nur „in Zustellung“. Das Gerät ist ein Geschenk, ich brauche
es spätestens am Freitag. Bitte prüfen Sie das dringend.

Bestellnummer und Sendungsnummer stehen im Anhang.

Mit freundlichen Grüßen
Jürgen Groß
Weißdornstraße 7, 50999 Köln
"""  # noqa: RUF001 -- people write dashes, and the example must cope

MAIL_ATTACHMENT = """\
Lieferschein-Übersicht
======================
Bestellung:      A-10482
Sendungsnummer:  DE-7741-0093
Artikel:         Espressomaschine „Größe M“, 1 Stück
Zugesagt:        3. März
Zustand:         in Zustellung (unverändert seit 5. März)
"""

PDF_LINES = (
    "Zoë Brandt",
    "Café Aurore, 12 Harbour Row, Northport",
    "zoe.brandt@example.org",
    "",
    "To: Support desk",
    "Subject: Wrong amount on invoice INV-2024-0193",
    "",
    "Dear support desk,",
    "",
    "your invoice INV-2024-0193 for order B-20451 charges three grinders at 249.00 EUR each.",
    "We ordered and received two, so the invoice is wrong by 249.00 EUR.",
    "The amount was debited on 2 May. Please correct the invoice and tell us how the",
    "overcharge is refunded. The delivery itself was fine, and the crème brûlée torch works.",
    "",
    "There is no hurry; an answer within the month is enough.",
    "",
    "Kind regards",
    "Zoë Brandt",
)

TEXT = """\
From: Łukasz Żółć <lukasz.zolc@example.com>
Subject: Kettle “Señor Té” smells of burning

Hello,

the kettle “Señor Té” from order C-30977 is broken after four days. It switches itself on, does not stop
at 100 °C, and yesterday there was smoke from the base – I pulled the plug immediately.

Is it safe to keep in the house? I would like a replacement under the warranty as soon as possible,
and a naïve question: do you need the faulty one back?

Dziękuję i pozdrawiam
Łukasz Żółć
"""  # noqa: RUF001 -- as above


def encoded_word(text: str) -> str:
    """An RFC 2047 header value in UTF-8, folded into words of at most 75 characters that never cut a letter in two."""
    words: list[str] = []
    piece = ""
    for letter in text:
        if len((piece + letter).encode()) > 42:  # 42 bytes are 56 in base64; with the frame below 75
            words.append(piece)
            piece = ""
        piece += letter
    words.append(piece)
    return "\r\n ".join(f"=?utf-8?B?{base64.b64encode(word.encode()).decode()}?=" for word in words)


def make_mail() -> bytes:
    """The e-mail on a late delivery: multipart, encoded headers, quoted-printable body, base64 attachment, CRLF."""
    body = quopri.encodestring(MAIL_BODY.encode()).decode().replace("\n", "\r\n")
    attached = base64.encodebytes(MAIL_ATTACHMENT.encode()).decode().replace("\n", "\r\n")
    lines = (
        f"From: {encoded_word('Jürgen Groß')} <juergen.gross@example.org>",
        "To: Support <support@example.com>",
        f"Subject: {encoded_word('Lieferung überfällig – bitte dringend prüfen')}",  # noqa: RUF001 -- as above
        "Date: Thu, 14 Mar 2024 09:12:44 +0100",
        "Message-ID: <20240314.091244.10482@mail.example.org>",
        "MIME-Version: 1.0",
        f'Content-Type: multipart/mixed; boundary="{BOUNDARY}"',
        "",
        "This is a message in several parts.",
        f"--{BOUNDARY}",
        "Content-Type: text/plain; charset=utf-8",
        "Content-Transfer-Encoding: quoted-printable",
        "",
        body,
        f"--{BOUNDARY}",
        "Content-Type: text/plain; charset=utf-8",
        "Content-Transfer-Encoding: base64",
        "Content-Disposition: attachment; filename*=utf-8''Lieferschein-%C3%9Cbersicht.txt",
        "",
        f"{attached}--{BOUNDARY}--",
        "",
    )
    return "\r\n".join(lines).encode("ascii")


def make_pdf(lines: Sequence[str]) -> bytes:
    """A PDF of one A4 page that shows the lines in Helvetica; the letters are those of Windows-1252.

    Raises UnicodeEncodeError for a letter that this encoding does not have.
    """
    shown = b"".join(b"(" + _escaped(line) + b") Tj T*\n" for line in lines)
    content = b"BT\n/F1 11 Tf\n15 TL\n56 780 Td\n" + shown + b"ET\n"
    objects = (
        b"<< /Type /Catalog /Pages 2 0 R >>",
        b"<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
        b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 595 842] /Resources << /Font << /F1 5 0 R >> >> /Contents 4 0 R >>",
        b"<< /Length %d >>\nstream\n%sendstream" % (len(content), content),
        b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica /Encoding /WinAnsiEncoding >>",
    )
    whole = bytearray(b"%PDF-1.4\n%\xe2\xe3\xcf\xd3\n")
    offsets: list[int] = []
    for number, value in enumerate(objects, start=1):
        offsets.append(len(whole))
        whole += b"%d 0 obj\n%s\nendobj\n" % (number, value)
    start = len(whole)
    whole += b"xref\n0 %d\n0000000000 65535 f \n" % (len(objects) + 1)
    whole += b"".join(b"%010d 00000 n \n" % offset for offset in offsets)
    whole += b"trailer\n<< /Size %d /Root 1 0 R >>\nstartxref\n%d\n%%%%EOF\n" % (len(objects) + 1, start)
    return bytes(whole)


def _escaped(line: str) -> bytes:
    plain = line.replace("\\", "\\\\").replace("(", "\\(").replace(")", "\\)")
    return plain.encode("cp1252")


def make_all() -> dict[str, bytes]:
    """Every input by its file name."""
    return {
        "late_delivery.eml": make_mail(),
        "wrong_invoice.pdf": make_pdf(PDF_LINES),
        "broken_device.txt": TEXT.encode(),
    }


def main(argv: Sequence[str] | None = None) -> int:
    """The command line: write the inputs, or with `--check` return 1 where one differs from what would be written."""
    parser = argparse.ArgumentParser(prog="examples.support_desk.make_inputs", description="Write the example's inputs.")
    parser.add_argument("--check", action="store_true", help="write nothing, only compare")
    check = bool(parser.parse_args(argv).check)
    stale = False
    for name, content in make_all().items():
        path = INPUTS / name
        if check and (not path.is_file() or path.read_bytes() != content):
            stale = True
            sys.stderr.write(f"{name} differs from what make_inputs.py writes\n")
        elif not check:
            INPUTS.mkdir(exist_ok=True)
            path.write_bytes(content)
    return int(stale)


if __name__ == "__main__":
    raise SystemExit(main())
