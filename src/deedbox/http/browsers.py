"""Calls from browsers: with a public form key to submit, with a status token to look at one job, and from no other page.

Cookies are not read, so a foreign page has nothing to borrow. An answer may be read by pages of the key's own origins alone.
"""

from collections.abc import Mapping
from uuid import UUID

from starlette.requests import Request
from starlette.responses import Response

from deedbox.access import allows_origin, give_status_token, resolve_status_token, spend
from deedbox.http import headers
from deedbox.http.deps import HttpDeps
from deedbox.http.problems import problem
from deedbox.http.routing import Handler, KnownHandler, who
from deedbox.intake.request import Request as Submission
from deedbox.model.errors import DeedboxError
from deedbox.model.identity import FormKey, Principal

STATUS_TOKEN = "Deedbox-Status-Token"  # noqa: S105 -- the header's name
_SENT = f"Authorization, Content-Type, Idempotency-Key, Deedbox-Caller-Run, Last-Event-ID, {STATUS_TOKEN}"
_READ = "Location, Retry-After, Idempotent-Replayed"
_KEEP_S = 600


class Browsers:
    """The doors that browsers may use, and what they are told about them."""

    def __init__(self, deps: HttpDeps) -> None:
        """Without `deps.identity` there are no form keys and no status tokens."""
        self._deps = deps

    def submitting(self, handler: KnownHandler) -> Handler:
        """A handler that accepts jobs, for services and people, and for form keys of its action from their own origins."""

        async def run(request: Request) -> Response:
            principal = await who(self._deps, request)
            if isinstance(principal, Response):
                return await self._readable(request, principal, str(request.path_params["action"]))
            if principal.form is None:
                return await handler(request, principal)
            origin = _origin(request)
            try:
                await self._admit(request, principal, origin)
                response = await handler(request, principal)
            except DeedboxError as error:
                response = problem(error)
            return _allow(response, origin) if origin in principal.form.origins else response

        return run

    async def _admit(self, request: Request, principal: Principal, origin: str | None) -> None:
        """Refuse a form key that is elsewhere than it may be, or too often; what is refused is journalled."""
        name = str(request.path_params["action"])
        try:
            await self._check(principal.form, name, origin)
        except DeedboxError as error:
            if self._deps.refused is not None:
                await self._deps.refused(Submission(principal, name, None, None, "form"), error)
            raise

    async def _check(self, form: FormKey | None, name: str, origin: str | None) -> None:
        identity = self._deps.identity
        if form is None or identity is None:
            raise DeedboxError("permission_denied", "Form keys are not taken here.")
        if origin not in form.origins:
            raise DeedboxError("permission_denied", "This form key may not be sent from here.")
        if name != form.action:
            raise DeedboxError("permission_denied", f"This form key submits {form.action} and nothing else.")
        await spend(identity.pool, form)

    def showing(self, handler: KnownHandler) -> Handler:
        """A handler that shows one job, for keys and sessions, and for the status token of that very job."""

        async def run(request: Request) -> Response:
            principal = await self.reader(request)
            if isinstance(principal, Response):
                return await self._readable(request, principal, None)
            origin = _origin(request)
            if principal.form is None:
                return await handler(request, principal)
            try:
                response = await handler(request, principal)
            except DeedboxError as error:
                response = problem(error)
            return _allow(response, origin) if origin in principal.form.origins else response

        return run

    async def reader(self, request: Request) -> Principal | Response:
        """Who asks for a job: the bearer of a status token of it, or of a key or session; else the refusal."""
        token = headers.one_header(request, STATUS_TOKEN)
        if token is None:
            principal = await who(self._deps, request)
            if not isinstance(principal, Response) and principal.form is not None:
                return problem(DeedboxError("permission_denied", "A form key submits one action and reads nothing."))
            return principal
        found = None
        if self._deps.identity is not None and not headers.header_values(request, "Authorization"):
            job_id = headers.path_id(request, "job_id", "job")
            found = await resolve_status_token(self._deps.identity.pool, token, job_id)
        # An unknown token, an old one and one of another job are told apart by nobody.
        return found or problem(DeedboxError("unauthenticated", "The status token is unknown, over or of another job."))

    async def token(self, principal: Principal, job_id: UUID) -> str | None:
        """A status token where the job was submitted with a form key."""
        if principal.form is None or self._deps.identity is None:
            return None
        return await give_status_token(self._deps.identity.pool, principal.form, job_id)

    def asking(self, *methods: str) -> Handler:
        """OPTIONS: whether a page of this origin may send such a call. It shows nothing and needs no key."""

        async def run(request: Request) -> Response:
            origin, action = _origin(request), request.path_params.get("action")
            response = Response(status_code=204, headers={"Cache-Control": "no-store"})
            if await self._knows(origin, None if action is None else str(action)):
                more = {
                    "Access-Control-Allow-Methods": ", ".join(methods),
                    "Access-Control-Allow-Headers": _SENT,
                    "Access-Control-Max-Age": str(_KEEP_S),
                }
                return _allow(response, origin, more)
            response.headers["Vary"] = "Origin"
            return response

        return run

    async def _readable(self, request: Request, response: Response, action: str | None) -> Response:
        """A refusal, readable by pages of the origins of form keys, so that their scripts see why."""
        origin = _origin(request)
        return _allow(response, origin) if await self._knows(origin, action) else response

    async def _knows(self, origin: str | None, action: str | None) -> bool:
        identity = self._deps.identity
        return identity is not None and origin is not None and await allows_origin(identity.pool, origin, action)


def _origin(request: Request) -> str | None:
    found = headers.header_values(request, "Origin")
    return found[0] if len(found) == 1 else None


def _allow(response: Response, origin: str | None, more: Mapping[str, str] | None = None) -> Response:
    if origin is not None:
        response.headers["Access-Control-Allow-Origin"] = origin
        response.headers["Access-Control-Expose-Headers"] = _READ
        response.headers["Vary"] = "Origin"
        for name, value in (more or {}).items():
            response.headers[name] = value
    return response
