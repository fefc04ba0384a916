"""What each route needs: the verb, or the reason why it is open. A route that is not here fails the tests of the house.

The check itself is where the thing is done, in `operate`, `intake`, `gate` and `access`; this table says what it must be, and a
walk over every route of a real installation proves that it is.
"""

from dataclasses import dataclass
from typing import Literal

from deedbox.model.identity import Verb

Who = Literal["verb", "bearer", "person", "session", "open"]


@dataclass(frozen=True, slots=True)
class Permission:
    """What a route asks of its caller.

    `who` is `verb` (a principal that may `verb`), `bearer` (any living key or session: what it sees is bound in SQL), `person`
    (a person, however proven), `session` (a person in a session) or `open`; `why` says why it is no more than that, or what
    else counts. An access token must have been issued for one of `scopes`; where there are none, for anything.
    """

    who: Who
    verb: Verb | None = None
    why: str = ""
    scopes: frozenset[Verb] = frozenset()


def _verb(verb: Verb, why: str = "", *, or_with: Verb | None = None) -> Permission:
    return Permission("verb", verb, why, frozenset({verb} if or_with is None else {verb, or_with}))


_CALLS: frozenset[Verb] = frozenset({"submit", "read"})


def _bearer(why: str) -> Permission:
    return Permission("bearer", None, why, frozenset({"read"}))


def _person(why: str, scope: Verb = "decide") -> Permission:
    return Permission("person", None, why, frozenset({scope}))


_OWN = _bearer("one's own jobs; the tenant's for people who may read; a foreign one is unknown")
_MINE = Permission("session", None, "one's own alone")
_PREFLIGHT = Permission("open", None, "says whether a page of the origin may call; shows and changes nothing")
_PAGE = Permission("session", None, "leads to the login where there is no session")

ROUTES: dict[tuple[str, str], Permission] = {
    ("POST", "/api/actions/{action}/jobs"): Permission(
        "bearer",
        None,
        "a role that the action names, with `submit`, or with `read` where the action can have no effects; "
        "a form key for its one action",
        _CALLS,
    ),
    ("OPTIONS", "/api/actions/{action}/jobs"): _PREFLIGHT,
    ("GET", "/api/tools"): Permission("bearer", None, "what the bearer's roles may call", _CALLS),
    ("POST", "/api/tools/{action}"): Permission(
        "bearer",
        None,
        "a role that the action names, with `submit`, or with `read` where the action can have no effects",
        _CALLS,
    ),
    ("GET", "/api/jobs"): _OWN,
    ("GET", "/api/jobs/{job_id}"): _bearer(f"{_OWN.why}; the status token of that job"),
    ("OPTIONS", "/api/jobs/{job_id}"): _PREFLIGHT,
    ("GET", "/api/jobs/{job_id}/events"): _bearer(f"{_OWN.why}; the status token of that job"),
    ("OPTIONS", "/api/jobs/{job_id}/events"): _PREFLIGHT,
    ("POST", "/api/jobs/{job_id}/cancel"): _verb("cancel"),
    ("POST", "/api/jobs/{job_id}/retry"): _verb("take_up", "and a role of the action's `again`, where it names some"),
    ("POST", "/api/jobs/{job_id}/close"): _verb("take_up", "and a role of the action's `again`, where it names some"),
    ("POST", "/api/jobs/{job_id}/replacement"): _verb("replace", "and a role of the action's `again`, where it names some"),
    ("GET", "/api/documents/{document_id}"): _OWN,
    ("GET", "/api/approvals"): _bearer("of one's own jobs; all of the tenant's for people who may read"),
    ("GET", "/api/approvals/{approval_id}"): _bearer("of one's own jobs; all for people who may read"),
    ("POST", "/api/approvals/{approval_id}/decision"): _verb("decide", "a person, with a role of the approval's audience"),
    ("POST", "/api/approvals/decisions"): _person("with a role of each one's audience; an answer for each"),
    ("POST", "/api/approvals/{approval_id}/edit"): _verb("decide", "a person, with a role of the approval's audience"),
    ("POST", "/api/approvals/{approval_id}/delegate"): _person("who could decide it"),
    ("POST", "/api/approvals/{approval_id}/comments"): _person("who may read it"),
    ("POST", "/api/approvals/{approval_id}/snooze"): _person("who may read it; one's own alone"),
    ("GET", "/api/delegations"): _person("one's own: what was given and what was taken", "read"),
    ("POST", "/api/delegations"): _person("no more than one has oneself"),
    ("POST", "/api/delegations/{delegation_id}/withdraw"): _person("who gave it or has it"),
    ("GET", "/api/policy"): _verb("read"),
    ("GET", "/api/report"): _verb("read"),
    ("GET", "/api/policy/trial"): _verb("read"),
    ("GET", "/api/alerts"): _verb("read"),
    ("POST", "/api/alerts/{alert_id}/close"): _verb("reconcile", "a person"),
    ("GET", "/api/callbacks"): _verb("read"),
    ("POST", "/api/callbacks/replay"): _verb("retry"),
    ("GET", "/api/callbacks/disabled"): _verb("read"),
    ("POST", "/api/callbacks/{target}/enable"): _verb("switch"),
    ("GET", "/api/targets"): _verb("read"),
    ("GET", "/api/targets/egress"): _verb("read"),
    ("PUT", "/api/targets"): _verb("cancel", "a person to resume one"),
    ("GET", "/api/audit"): _verb("administer"),
    ("GET", "/api/audit/check"): _verb("administer"),
    ("GET", "/api/audit/export"): _verb("administer"),
    ("GET", "/api/audit/key"): _bearer("for jobs that one may see; any other is unknown"),
    ("GET", "/api/audit/answers"): _bearer("for jobs that one may see; any other is unknown"),
    ("POST", "/api/erasures"): _verb("administer"),
    ("POST", "/api/switch/test"): Permission("bearer", None, "who may switch or cancel", frozenset({"switch", "cancel"})),
    ("GET", "/api/switch"): _verb("read"),
    ("PUT", "/api/switch"): _verb("switch", "a person to turn it on; off with `cancel` too", or_with="cancel"),
    ("GET", "/api/lanes"): _verb("read"),
    ("PUT", "/api/lanes/{lane_id}"): _verb("cancel"),
    ("PUT", "/api/lanes/actions/{action}"): _verb("switch"),
    ("GET", "/api/effects"): _verb("read"),
    ("GET", "/api/effects/{effect_id}"): _verb("read"),
    ("POST", "/api/effects/{effect_id}/{verb}"): _verb("reconcile", "a person"),
    ("POST", "/api/login"): Permission("open", None, "takes the name and the password themselves, with a limit on guessing"),
    ("GET", "/api/me"): Permission("bearer", None, "oneself"),
    ("GET", "/api/keys"): _MINE,
    ("POST", "/api/keys"): _MINE,
    ("DELETE", "/api/keys/{key_id}"): _MINE,
    ("GET", "/api/sessions"): _MINE,
    ("DELETE", "/api/sessions"): _MINE,
    ("DELETE", "/api/sessions/{session_id}"): _MINE,
    ("GET", "/healthz"): Permission("open", None, "for load balancers; says that the process is up"),
    ("GET", "/readyz"): Permission("open", None, "for load balancers; says what is not ready, without data of anybody"),
    ("GET", "/metrics"): Permission("open", None, "for Prometheus; counts without data of anybody; keep it inside"),
    ("GET", "/api/openapi.json"): Permission("open", None, "the description of the API; it holds no data"),
    **{
        ("GET", f"/.well-known/oauth-protected-resource{face}"): Permission(
            "open", None, "says where tokens for this server are issued (RFC 9728); holds no data"
        )
        for face in ("", "/api", "/mcp")
    },
    ("POST", "/mcp"): Permission(
        "bearer", None, "each tool asks what its action or its route of the API asks", frozenset({"submit", "read", "cancel"})
    ),
    ("DELETE", "/mcp"): Permission("bearer", None, "ends a session of the older protocol, of which nothing is kept"),
    ("OPTIONS", "/mcp"): _PREFLIGHT,
    ("GET", "/mcp"): Permission("open", None, "always refused with 405, in a form that a page may read"),
    ("GET", "/"): _PAGE,
    ("GET", "/login"): Permission("open", None, "the form to log in"),
    ("POST", "/login"): Permission("open", None, "takes the name and the password themselves; its own form alone"),
    ("POST", "/login/{provider}"): Permission("open", None, "begins a login at a provider; its own form alone"),
    ("GET", "/login/{provider}/callback"): Permission("open", None, "takes the provider's answer: once, in its own browser"),
    ("POST", "/logout"): Permission("open", None, "ends the session that it comes with, if there is one; its own form alone"),
    ("GET", "/account"): _PAGE,
    ("POST", "/account/keys"): _MINE,
    ("POST", "/account/keys/{key_id}"): _MINE,
    ("POST", "/account/sessions"): _MINE,
    ("GET", "/approvals/{approval_id}"): Permission(
        "session", None, "without one a link tells the action, who asks and until when"
    ),
    ("POST", "/approvals/{approval_id}"): _verb("decide", "a person in a session, with a role of the approval's audience"),
    ("GET", "/approvals/{approval_id}/edit"): _PAGE,
    ("POST", "/approvals/{approval_id}/edit"): _verb("decide", "a person in a session, with a role of the approval's audience"),
    ("POST", "/approvals/{approval_id}/delegate"): _verb("decide", "a person in a session, who could decide it"),
    ("POST", "/approvals/{approval_id}/comment"): Permission("session", None, "who may read it"),
    ("POST", "/approvals/{approval_id}/snooze"): Permission("session", None, "who may read it; one's own alone"),
    ("GET", "/many"): _PAGE,
    ("POST", "/many"): Permission("session", None, "with a role of each one's audience; an answer for each"),
    ("GET", "/delegations"): _PAGE,
    ("POST", "/delegations"): _verb("decide", "a person in a session; no more than one has oneself"),
    ("POST", "/delegations/{delegation_id}/withdraw"): Permission("session", None, "who gave it or has it"),
    ("POST", "/effects/{effect_id}/cancel"): _verb("cancel", "a person in a session"),
    ("GET", "/alerts"): _PAGE,
    ("POST", "/alerts/{alert_id}"): _verb("reconcile", "a person in a session"),
    ("GET", "/targets"): _PAGE,
    ("POST", "/targets"): _verb("cancel", "a person in a session"),
    ("GET", "/switch"): _PAGE,
    ("POST", "/switch"): _verb("switch", "a person in a session; off and its test with `cancel` too"),
    ("GET", "/documents/{document_id}"): _PAGE,
    ("GET", "/static/{hash}/deedbox.css"): Permission("open", None, "the style sheet"),
}
"""By method and path. HEAD is as GET."""
