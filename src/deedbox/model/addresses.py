"""Mail addresses in the one strict form that every server reads alike."""

import re

_LOCAL = re.compile(r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+(?:\.[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+)*")
_DOMAIN = re.compile(r"(?:[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?\.)*[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?")
_MAX_LOCAL = 64
_MAX_ADDRESS = 254


def check_mail_address(value: str) -> str:
    """The address unchanged if it is `local@domain` in plain ASCII; raises ValueError otherwise.

    Display names, comments, quoted local parts, routes, address literals and lists are refused: each of them has been
    read as two different recipients by two programs. Write a domain outside ASCII in its `xn--` form.
    """
    local, at, domain = value.rpartition("@")
    if not at or len(value) > _MAX_ADDRESS or len(local) > _MAX_LOCAL:
        raise ValueError("not a mail address of the form name@domain")
    if not _LOCAL.fullmatch(local) or not _DOMAIN.fullmatch(domain):
        raise ValueError("not a plain mail address of the form name@domain")
    if domain.rpartition(".")[2].isdigit():
        raise ValueError("the domain of a mail address is a name, not a number")
    return value


def mail_domain(address: str) -> str:
    """The part after the at sign."""
    return address.rpartition("@")[2]
