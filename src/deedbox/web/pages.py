"""The pages: Jinja templates that escape everything, and the headers every answer carries."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import resources
from typing import Any, cast

from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.responses import HTMLResponse, Response

from deedbox.web.difference import differences
from deedbox.web.visible import host_of, safe_url, visible

_STYLE = resources.files("deedbox.web").joinpath("static", "deedbox.css").read_bytes()
STYLE_PATH = f"/static/{hashlib.sha256(_STYLE).hexdigest()[:16]}/deedbox.css"

HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": (
        "default-src 'none'; style-src 'self'; img-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "X-Robots-Tag": "noindex, nofollow",
}

_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "June", "July", "Aug", "Sept", "Oct", "Nov", "Dec")
_LINE = 72
_MINUTE_S = 60
_HOUR_S = 3600
_DAY_S = 86_400
_MANY = 2
_KIB = 1024


def when(moment: datetime, zone: str | None = None) -> str:
    """A moment in its own zone, in words that need no locale: `Thu 14 May 2026, 16:30 CEST`."""
    name = moment.tzname() if zone is None else zone
    day = f"{_DAYS[moment.weekday()]} {moment.day} {_MONTHS[moment.month - 1]} {moment.year}"
    return f"{day}, {moment.hour:02}:{moment.minute:02} {name or ''}".rstrip()


def utc(moment: datetime) -> str:
    """A moment in UTC, whatever zone it came in."""
    return when(moment.astimezone(UTC), "UTC")


def remaining(seconds: float) -> str:
    """How long is left, rounded down to what a person would say."""
    if seconds < _MINUTE_S:
        return "under a minute left" if seconds > 0 else "time is over"
    if seconds < _HOUR_S:
        return f"{int(seconds // _MINUTE_S)} min left"
    if seconds < _MANY * _DAY_S:
        hours, minutes = divmod(int(seconds // _MINUTE_S), _MINUTE_S)
        return f"{hours} h {minutes} min left" if minutes and hours <= _MANY else f"{hours} h left"
    return f"{int(seconds // _DAY_S)} days left"


def lasted(seconds: float) -> str:
    """How long something has lasted, rounded down: `42 s`, `7 min`, `3 h`, `5 d`."""
    for unit, length in (("d", _DAY_S), ("h", _HOUR_S), ("min", _MINUTE_S)):
        if seconds >= length:
            return f"{int(seconds // length)} {unit}"
    return f"{max(0, int(seconds))} s"


def title_of(action: str) -> str:
    """An action's name as a title: `draft_customer_reply` becomes `Draft customer reply`."""
    words = action.replace("_", " ").strip()
    return words[:1].upper() + words[1:]


def size_of(count: int) -> str:
    """A number of bytes as a person reads it."""
    if count < _KIB:
        return f"{count} bytes"
    if count < _KIB * _KIB:
        return f"{count / _KIB:.1f} KiB"
    return f"{count / _KIB / _KIB:.1f} MiB"


def is_long(value: str) -> bool:
    """Whether a value needs the whole width rather than a place beside its label."""
    return "\n" in value or len(value) > _LINE


@dataclass(frozen=True, slots=True)
class Shown:
    """What every page needs: who is logged in, the CSRF token of the session, if there is one, and the path it is at."""

    name: str | None = None
    csrf: str | None = None
    path: str = ""


class Pages:
    """Renders the templates for one public address; `base` is the path before every link, without a slash at its end.

    `places` are the paths and names of the pages that every other one leads to.
    """

    def __init__(self, base: str, places: Sequence[tuple[str, str]] = (("/", "Inbox"),)) -> None:
        """Templates are compiled once, at their first use."""
        # The deciding value is escaped by `visible`; everything else by autoescape. A name missing in a template raises.
        self._environment = Environment(
            loader=PackageLoader("deedbox.web", "templates"),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
            auto_reload=False,
        )
        cast("dict[str, Any]", self._environment.filters).update(
            differences=differences,
            visible=visible,
            when=when,
            utc=utc,
            remaining=remaining,
            lasted=lasted,
            title_of=title_of,
            size_of=size_of,
        )
        self._environment.tests["long"] = is_long
        known: dict[str, Any] = {
            "base": base,
            "places": tuple(places),
            "style": base + STYLE_PATH,
            "safe_url": safe_url,
            "host_of": host_of,
        }
        cast("dict[str, Any]", self._environment.globals).update(known)

    def render(
        self,
        template: str,
        shown: Shown,
        context: Mapping[str, Any],
        *,
        status: int = 200,
        headers: Mapping[str, str] | None = None,
    ) -> HTMLResponse:
        """One page with all headers of safety."""
        text = self._environment.get_template(template).render(shown=shown, **context)
        return HTMLResponse(text, status_code=status, headers={**HEADERS, **(headers or {})})

    def message(
        self,
        shown: Shown,
        *,
        status: int,
        heading: str,
        sentences: tuple[str, ...],
        way_on: tuple[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> HTMLResponse:
        """A page that says in plain words what happened; `way_on` is the path and the words of one link."""
        context = {"heading": heading, "sentences": sentences, "way_on": way_on}
        return self.render("message.html", shown, context, status=status, headers=headers)


def style() -> Response:
    """The style sheet; its address changes with its content, so it may be kept for ever."""
    headers = {**HEADERS, "Cache-Control": "public, max-age=31536000, immutable"}
    return Response(_STYLE, media_type="text/css", headers=headers)
