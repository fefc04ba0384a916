"""Text of strangers made safe to read: what a screen would hide, reorder or disguise is shown as such.

Direction controls, zero-width and other unprintable characters become a mark with their number. Words that mix scripts and
host names with letters beyond ASCII get a note with their true spelling.
"""

import re
import unicodedata
from urllib.parse import urlsplit

from markupsafe import Markup, escape

_JOINERS = "\u200c\u200d"
_HIDDEN = {"Cc", "Cf", "Cn", "Co", "Cs", "Zl", "Zp"}
_BLANK_LETTERS = "\u034f\u115f\u1160\u17b4\u17b5\u3164\uffa0"
_LOOK_ALIKE = ("CYRILLIC", "GREEK", "ARMENIAN", "CHEROKEE", "COPTIC", "LISU")
_WORD = re.compile(r"[^\W\d_]{2,}")
_HOST = re.compile(r"(?:://|@)((?:[^\s/@:?#<>()\[\],;\"'.]+\.)+[^\s/@:?#<>()\[\],;\"'.]+)")


def _is_hidden(character: str, before: str) -> bool:
    if character in "\n\t" or " " <= character <= "~":
        return False
    if character in _JOINERS:
        # Persian, Indic scripts and emoji need the joiners; after a Latin letter they only hide.
        return before.isascii()
    return character in _BLANK_LETTERS or unicodedata.category(character) in _HIDDEN


def _mark(character: str) -> Markup:
    name = unicodedata.name(character, "a character that does not print")
    return Markup('<span class="ctl" title="{}">U+{:04X}</span>').format(name, ord(character))


def _scripts(word: str) -> list[str]:
    names = {unicodedata.name(letter, "").split(" ", 1)[0] for letter in word}
    foreign = sorted(name.title() for name in names if name in _LOOK_ALIKE)
    return ["Latin", *foreign] if "LATIN" in names and foreign else []


def _notes(text: str) -> dict[int, str]:
    """Notes by the place in the text after which they stand."""
    notes: dict[int, str] = {}
    if text.isascii():
        return notes
    for match in _WORD.finditer(text):
        scripts = _scripts(match[0])
        if scripts:
            notes[match.end()] = f"mixes {' and '.join(scripts)} letters"
    for match in _HOST.finditer(text):
        host = match[1]
        if not host.isascii():
            try:
                notes[match.end()] = f"really {host.encode('idna').decode()}"
            except UnicodeError:
                notes[match.end()] = "not a host name that can exist"
    return notes


def visible(value: object) -> Markup:
    """The value as HTML in which nothing is hidden. Line ends are kept; the page shows them with `white-space: pre-wrap`."""
    text = str(value).replace("\r\n", "\n")
    notes = _notes(text)
    parts: list[Markup] = []
    before = " "
    run = 0
    for place, character in enumerate(text):
        if place in notes:
            parts.extend((escape(text[run:place]), _note(notes[place])))
            run = place
        if _is_hidden(character, before):
            parts.extend((escape(text[run:place]), _mark(character)))
            run = place + 1
        before = character
    parts.append(escape(text[run:]))
    if len(text) in notes:
        parts.append(_note(notes[len(text)]))
    return Markup("").join(parts)


def _note(words: str) -> Markup:
    return Markup(' <span class="ctl">{}</span>').format(words)


def safe_url(url: str) -> str | None:
    """The URL where it is http(s) without user information, or a path on this site; None for anything else."""
    if url.startswith("/") and not url.startswith(("//", "/\\")):
        return url
    try:
        parts = urlsplit(url)
        ours = parts.scheme in ("http", "https") and bool(parts.hostname) and "@" not in parts.netloc
    except ValueError:
        return None
    return url if ours else None


def host_of(url: str) -> str:
    """The host a link leads to, in ASCII where it can be; empty for a path on this site."""
    try:
        host = urlsplit(url).hostname or ""
        return host if host.isascii() else host.encode("idna").decode()
    except (ValueError, UnicodeError):
        return url
