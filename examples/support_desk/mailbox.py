"""An SMTP server as a process of its own that keeps what it gets: one `.eml` file per mail, whole or not at all.

`python -m examples.support_desk.mailbox --port 0 --port-file PATH --maildir PATH` serves on 127.0.0.1. A mail is on disk
before it is answered with 250, so an accepted mail is never lost and a file is never half a mail.
"""

import argparse
import asyncio
import itertools
import re
import signal
from collections.abc import Sequence
from pathlib import Path

from aiosmtpd.smtp import SMTP, Envelope, Session

from examples.support_desk.listening import announce, listen, write_atomically

MAX_MAIL = 10 * 1024 * 1024
_NUMBERED = re.compile(r"(\d{6,})\.eml")


class Mailbox:
    """Stores each accepted mail under the next number, with the envelope in two lines at the top as delivery agents do."""

    def __init__(self, maildir: Path) -> None:
        """Keep mails in `maildir`, which is made where it is missing; numbering goes on after what is there."""
        maildir.mkdir(parents=True, exist_ok=True)
        self._maildir = maildir
        taken = [int(found[1]) for path in maildir.iterdir() if (found := _NUMBERED.fullmatch(path.name))]
        self._numbers = itertools.count(max(taken, default=0) + 1)

    async def handle_DATA(self, _server: SMTP, _session: Session, envelope: Envelope) -> str:  # noqa: N802 -- aiosmtpd's name
        """Store the mail and answer 250 with its number, or 451 where the disk refused; then nothing is stored."""
        number = f"{next(self._numbers):06d}"
        content = envelope.content
        body = content if isinstance(content, bytes) else (content or "").encode()
        top = [f"Return-Path: <{envelope.mail_from or ''}>", *(f"X-Envelope-To: {to}" for to in envelope.rcpt_tos)]
        whole = "\r\n".join([*top, ""]).encode() + body
        try:
            await asyncio.to_thread(write_atomically, self._maildir / f"{number}.eml", whole)
        except OSError:
            return "451 4.3.0 Could not be stored, try again later"
        return f"250 2.0.0 Stored as {number}"


def stored_mails(maildir: Path) -> list[Path]:
    """The mails a mailbox has stored, oldest first; an empty list where the directory does not exist yet."""
    return sorted(path for path in maildir.glob("*.eml") if _NUMBERED.fullmatch(path.name)) if maildir.is_dir() else []


async def serve(port: int, port_file: Path, maildir: Path) -> None:
    """Serve on 127.0.0.1 until SIGTERM or SIGINT; the port is in `port_file` once it can be dialled."""
    mailbox = Mailbox(maildir)
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for name in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(name, stop.set)

    def connection() -> SMTP:
        return SMTP(mailbox, data_size_limit=MAX_MAIL, enable_SMTPUTF8=True, hostname="mailbox.example.com", loop=loop)

    sock = listen(port)
    server = await loop.create_server(connection, sock=sock)
    announce(sock, port_file)
    try:
        await stop.wait()
    finally:
        server.close()


def main(argv: Sequence[str] | None = None) -> int:
    """The command line; returns 0 after a plain end."""
    parser = argparse.ArgumentParser(prog="examples.support_desk.mailbox", description="The support desk's mailbox.")
    parser.add_argument("--port", type=int, default=0, help="port on 127.0.0.1; 0 lets the kernel choose")
    parser.add_argument("--port-file", type=Path, required=True, help="where the port is written once it can be dialled")
    parser.add_argument("--maildir", type=Path, required=True, help="where the mails go, one .eml file each")
    given = parser.parse_args(argv)
    asyncio.run(serve(given.port, given.port_file, given.maildir))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
