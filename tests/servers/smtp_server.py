"""The mail server with faults, which users have too: it lives in `deedbox.testing`."""

from deedbox.testing.smtp_server import PHASES, Fault, Mail, Phase, SmtpServer

__all__ = ["PHASES", "Fault", "Mail", "Phase", "SmtpServer"]
