"""Reads a customer's document as it came: an e-mail with its attachments, a PDF, or plain text in any usual encoding.

The kind is told from the bytes, the name and the media type; the content is untrusted, so pages, parts and letters are
capped, and what was cut or could not be read is said in `notes`, never passed over.
"""

import io
import re
from collections.abc import Iterator
from dataclasses import dataclass
from email import message_from_bytes, policy
from email.message import MIMEPart
from email.utils import parseaddr
from html.parser import HTMLParser

from pypdf import PdfReader

MAX_LETTERS = 40_000
MAX_PAGES = 30
MAX_PARTS = 20
_ADDRESS = re.compile(r"[A-Za-z0-9][A-Za-z0-9._%+-]{0,63}@(?:[A-Za-z0-9-]{1,63}\.)+[A-Za-z]{2,24}")
_HEADER_LINE = re.compile(r"^(From|Von|Subject|Betreff):[ \t]*(.+)$", re.MULTILINE)
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f\u200e\u200f\u202a-\u202e\u2066-\u2069]")


class UnreadableDocumentError(ValueError):
    """The document has no text that can be read: empty, encrypted, only pictures, or broken."""


@dataclass(frozen=True, slots=True)
class Part:
    """One piece of the text, and where in the document it stood."""

    source: str
    text: str


@dataclass(frozen=True, slots=True)
class Reading:
    """What a document says: its kind, its parts in order, who sent it (empty where it does not say), what was cut."""

    kind: str
    parts: tuple[Part, ...]
    subject: str
    sender: str
    sender_name: str
    notes: tuple[str, ...]

    @property
    def text(self) -> str:
        """All parts as one text, subject first."""
        return "\n\n".join(filter(None, [self.subject, *(part.text for part in self.parts)]))


def read_document(data: bytes, *, name: str = "", media_type: str = "") -> Reading:
    """Read a document's text and sender. Raises UnreadableDocumentError with a sentence where there is no text in it."""
    kind = _kind_of(data, name.lower(), media_type.lower())
    if kind == "e-mail":
        reading = _read_mail(data)
    elif kind == "PDF":
        reading = _from_text("PDF", _pdf_parts(data, "PDF"))
    else:
        reading = _from_text("text", [Part("text", _decoded(data))])
    if not any(part.text.strip() for part in reading.parts):
        raise UnreadableDocumentError(f"The {kind} has no readable text.")
    return _capped(reading)


def _kind_of(data: bytes, name: str, media_type: str) -> str:
    if data.lstrip()[:5] == b"%PDF-":
        return "PDF"
    if media_type.startswith("message/rfc822") or name.endswith(".eml"):
        return "e-mail"
    if b"\x00" in data and not data.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise UnreadableDocumentError("The document is neither an e-mail, a PDF nor a text.")
    return "text"


def _read_mail(data: bytes) -> Reading:
    mail = message_from_bytes(data, policy=policy.default)
    if not mail.keys():
        raise UnreadableDocumentError("The e-mail has no headers.")
    name, address = parseaddr(str(mail.get("From", "")))
    parts: list[Part] = []
    notes: list[str] = []
    body = mail.get_body(preferencelist=("plain", "html"))
    if body is not None:
        parts.append(Part("body", _mail_text(body)))
    for number, attached in enumerate(_attachments(mail, body)):
        source = f"attachment {_clean(attached.get_filename() or '')[:80] or number + 1}"
        if number >= MAX_PARTS:
            notes.append(f"Only the first {MAX_PARTS} attachments were read.")
            break
        try:
            parts += _attachment_parts(attached, source)
        except UnreadableDocumentError as error:
            notes.append(f"{source}: {error}")
    return Reading("e-mail", tuple(parts), _clean(str(mail.get("Subject", ""))), address.lower(), _clean(name), tuple(notes))


def _attachments(mail: MIMEPart, body: MIMEPart | None) -> Iterator[MIMEPart]:
    for part in mail.walk():
        chosen = part is body or part.is_multipart()
        # The other form of the same body (HTML beside plain text) is not an attachment.
        if not chosen and (part.is_attachment() or part.get_filename()):
            yield part


def _attachment_parts(part: MIMEPart, source: str) -> list[Part]:
    payload = part.get_payload(decode=True)
    data = payload if isinstance(payload, bytes) else b""
    if data[:5] == b"%PDF-":
        return _pdf_parts(data, source)
    if part.get_content_maintype() == "text":
        return [Part(source, _mail_text(part))]
    raise UnreadableDocumentError("not a text or a PDF, so it was not read")


def _mail_text(part: MIMEPart) -> str:
    payload = part.get_payload(decode=True)
    data = payload if isinstance(payload, bytes) else b""
    text = _decoded(data, part.get_content_charset())
    return _without_tags(text) if part.get_content_subtype() == "html" else text


def _pdf_parts(data: bytes, source: str) -> list[Part]:
    try:
        # An encrypted file is tried with the empty password that readers try too; without success its pages raise.
        pages = [page.extract_text() for page in PdfReader(io.BytesIO(data)).pages[:MAX_PAGES]]
    except Exception as error:  # pypdf raises whatever a broken file makes of its objects, not only its own classes
        raise UnreadableDocumentError("The PDF is broken or encrypted.") from error
    return [Part(f"{source}, page {number}", text) for number, text in enumerate(pages, start=1)]


def _from_text(kind: str, parts: list[Part]) -> Reading:
    """A reading of a document without headers of its own: lines such as `From:` count, else the first address in it."""
    text = "\n".join(part.text for part in parts)
    lines = {found[1]: found[2].strip() for found in _HEADER_LINE.finditer(text)}
    name, address = parseaddr(lines.get("From") or lines.get("Von") or "")
    if not _ADDRESS.fullmatch(address):
        first = _ADDRESS.search(text)
        name, address = "", first[0] if first else ""
    subject = lines.get("Subject") or lines.get("Betreff") or ""
    return Reading(kind, tuple(parts), _clean(subject), address.lower(), _clean(name), ())


def _decoded(data: bytes, charset: str | None = None) -> str:
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        charset = "utf-16"
    for encoding in filter(None, (charset, "utf-8-sig", "cp1252")):
        try:
            return _normal(data.decode(encoding))
        except (UnicodeDecodeError, LookupError):
            continue
    return _normal(data.decode("latin-1"))


def _normal(text: str) -> str:
    """Line ends as one letter; control and direction characters, which only ever mislead a reader, as spaces."""
    return _CONTROL.sub(" ", text.replace("\r\n", "\n").replace("\r", "\n"))


def _clean(text: str) -> str:
    """One line of at most 200 letters that is safe in a header and on a page."""
    return " ".join(_normal(text).split())[:200]


def _capped(reading: Reading) -> Reading:
    left = MAX_LETTERS
    parts: list[Part] = []
    for part in reading.parts:
        parts.append(Part(part.source, _normal(part.text)[:left]))
        left -= len(parts[-1].text)
    cut = sum(len(part.text) for part in reading.parts) > MAX_LETTERS
    notes = (*reading.notes, f"Only the first {MAX_LETTERS} letters were read.") if cut else reading.notes
    return Reading(reading.kind, tuple(parts), reading.subject, reading.sender, reading.sender_name, notes)


class _Text(HTMLParser):
    """Collects what a reader of the page would see."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.pieces: list[str] = []
        self._hidden = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        del attrs
        self._hidden += tag in {"script", "style"}
        if tag in {"br", "p", "div", "tr", "li"}:
            self.pieces.append("\n")

    def handle_endtag(self, tag: str) -> None:
        self._hidden -= tag in {"script", "style"} and self._hidden > 0

    def handle_data(self, data: str) -> None:
        if not self._hidden:
            self.pieces.append(data)


def _without_tags(html: str) -> str:
    parser = _Text()
    parser.feed(html)
    parser.close()
    return "".join(parser.pieces)
