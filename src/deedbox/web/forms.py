"""Forms of our own pages: where they may come from, what they may hold, and the cookies they rest on.

Three things hold off a foreign site: SameSite cookies, the browser's word where the form came from, and a token that belongs
to the session.
"""

import hmac
import secrets
from dataclasses import dataclass
from ipaddress import ip_address
from urllib.parse import parse_qsl, urlsplit

from starlette.requests import Request
from starlette.responses import Response

from deedbox.access import csrf_of
from deedbox.model.errors import DeedboxError

_LARGEST = 64 * 1024
_MOST_FIELDS = 20
# Of a form that holds what leaves: an edited payload, or many approvals at once.
_LARGEST_EDIT = 1024 * 1024
_MOST_EDITED = 1000
_FORM = "application/x-www-form-urlencoded"


def _is_loopback(host: str) -> bool:
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


@dataclass(frozen=True, slots=True)
class Site:
    """Where the console is, from the public URL alone and never from a request."""

    origin: str
    base: str
    secure: bool

    @classmethod
    def of(cls, public_url: str) -> "Site":
        """Raises ValueError for a URL that is not http(s), carries user information, or is http beyond loopback."""
        parts = urlsplit(public_url)
        if parts.scheme not in ("http", "https") or not parts.hostname or "@" in parts.netloc or parts.query or parts.fragment:
            raise ValueError("the public URL must be an http(s) URL without user information, query or fragment")
        if parts.scheme == "http" and not _is_loopback(parts.hostname):
            raise ValueError("the public URL must be https: approval links are not sent over plain HTTP, except on loopback")
        host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
        default = {"http": 80, "https": 443}[parts.scheme]
        port = "" if parts.port in (None, default) else f":{parts.port}"
        return cls(f"{parts.scheme}://{host}{port}", parts.path.rstrip("/"), parts.scheme == "https")

    def path(self, path: str) -> str:
        """A link on this site."""
        return self.base + path

    @property
    def session_cookie(self) -> str:
        """The cookie's name; the prefix keeps a neighbouring host from setting it."""
        return "__Host-deedbox_session" if self.secure else "deedbox_session"

    @property
    def login_cookie(self) -> str:
        """The cookie that ties a login form to the browser it was shown in."""
        return "__Host-deedbox_login" if self.secure else "deedbox_login"

    def session_of(self, request: Request) -> str:
        """The session token the browser sent; empty when it sent none."""
        return request.cookies.get(self.session_cookie, "")

    def set_cookie(self, response: Response, name: str, value: str) -> None:
        """Set a cookie that scripts cannot read and that ends with the browser."""
        response.set_cookie(name, value, path="/", secure=self.secure, httponly=True, samesite="lax")

    def drop_cookie(self, response: Response, name: str) -> None:
        """Take a cookie back."""
        response.delete_cookie(name, path="/", secure=self.secure, httponly=True, samesite="lax")

    def login_form(self, request: Request) -> tuple[str, str]:
        """The login cookie's value, the browser's own or a new one, and the form token that belongs to it."""
        value = request.cookies.get(self.login_cookie, "") or secrets.token_urlsafe(32)
        return value, csrf_of("login " + value)

    def login_secret(self, request: Request) -> str:
        """What only the browser holds in which a login form was shown; empty where none was."""
        return request.cookies.get(self.login_cookie, "")

    def owns_login_form(self, request: Request, csrf: str) -> bool:
        """Whether the login form was shown in this browser."""
        value = request.cookies.get(self.login_cookie, "")
        expected = csrf_of("login " + value)
        return bool(value) and hmac.compare_digest(expected.encode(), csrf.encode("utf-8", "surrogatepass"))

    def require_own_form(self, request: Request) -> None:
        """Raise DeedboxError("csrf_failed") unless the browser says that the form came from this site.

        Under `no-referrer` browsers send `Origin: null` with their own forms, so then `Sec-Fetch-Site` must vouch for it.
        """
        fetched_from = request.headers.get("sec-fetch-site")
        origin = request.headers.get("origin")
        if fetched_from is None:
            own = origin == self.origin
        else:
            own = fetched_from == "same-origin" and origin in (None, "null", self.origin)
        if not own:
            raise DeedboxError("csrf_failed", "The form was not sent from this site, so nothing was done.")


async def read_form(request: Request, *, large: bool = False) -> dict[str, str]:
    """The fields of a small urlencoded form, or of a large one, each at most once.

    Raises DeedboxError: unsupported_media_type, body_too_large, or invalid_input for fields that repeat or cannot be text.
    """
    if request.headers.get("content-type", "").split(";", 1)[0].strip().lower() != _FORM:
        raise DeedboxError("unsupported_media_type", "This page takes its own form only.")
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > (_LARGEST_EDIT if large else _LARGEST):
            raise DeedboxError("body_too_large", "The form is too large.")
    try:
        pairs = parse_qsl(
            body.decode("ascii"),
            keep_blank_values=True,
            max_num_fields=_MOST_EDITED if large else _MOST_FIELDS,
            encoding="utf-8",
            errors="strict",
        )
    except (UnicodeError, ValueError) as error:
        raise DeedboxError("invalid_input", "The form could not be read.") from error
    fields = dict(pairs)
    if len(fields) != len(pairs):
        raise DeedboxError("invalid_input", "A field was sent twice.")
    if any("\0" in value for value in fields.values()):
        raise DeedboxError("invalid_input", "A field holds a character that cannot be kept.")
    return fields
