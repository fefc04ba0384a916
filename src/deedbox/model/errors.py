"""One table of error codes for every face, and the exceptions that carry them."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Code:
    """A stable error code: its HTTP status, whether trying the same again can help, and what it says."""

    status: int
    retryable: bool
    title: str


CODES: dict[str, Code] = {
    "invalid_json": Code(400, False, "The body is not JSON."),
    "invalid_input": Code(400, False, "The input does not match the action's schema."),
    "secret_in_input": Code(400, False, "The input holds what looks like a secret."),
    "invalid_value": Code(400, False, "A value is one that no store can keep."),
    "invalid_multipart": Code(400, False, "The multipart body is broken or cut off."),
    "invalid_header": Code(400, False, "A header has a value that cannot be used."),
    "invalid_parameter": Code(400, False, "A query parameter has a value that cannot be used."),
    "empty_document": Code(400, False, "An uploaded document has no bytes."),
    "key_required": Code(400, False, "The action needs an idempotency key."),
    "key_invalid": Code(400, False, "The idempotency key is empty, blank, too long or not printable."),
    "callback_refused": Code(400, False, "A callback names a registered target, never a URL."),
    "unauthenticated": Code(401, False, "A valid API key is needed."),
    "permission_denied": Code(403, False, "The caller's role may not do this."),
    "insufficient_scope": Code(403, False, "The access token was not issued for this."),
    "login_refused": Code(403, False, "The login at the provider was not accepted."),
    "csrf_failed": Code(403, False, "The form was not sent from this site, or is too old."),
    "session_required": Code(403, False, "Only a person who is logged in on the page may do this."),
    "confirmation_required": Code(403, False, "The password, or what is at stake, has to be given again."),
    "person_required": Code(403, False, "Only a person who is logged in may do this."),
    "not_found": Code(404, False, "There is no such thing, or it is not yours."),
    "method_not_allowed": Code(405, False, "The route does not take this method."),
    "illegal_move": Code(409, False, "The thing is in a state that does not allow this."),
    "already_decided": Code(409, False, "The approval has been decided."),
    "approval_changed": Code(409, False, "The approval is not the one that was shown."),
    "repeat_unconfirmed": Code(409, False, "An effect would be done a second time, and nobody has confirmed that."),
    "policy_denied": Code(409, False, "The policy denies what was proposed."),
    "approval_expired": Code(409, False, "The approval's time is over."),
    "version_mismatch": Code(409, False, "The action has another version than the call was made for."),
    "budget_exhausted": Code(409, False, "The job has used up the calls that it may make."),
    "lease_lost": Code(409, False, "The lease belongs to someone else now."),
    "pruned": Code(410, False, "The job of this key has been removed after its retention."),
    "erased": Code(410, False, "The job of this key was erased for the person it was about."),
    "body_too_large": Code(413, False, "The body is larger than the limit."),
    "document_too_large": Code(413, False, "An uploaded document is larger than the limit."),
    "unsupported_media_type": Code(415, False, "The media type is not one this route takes."),
    "key_reused": Code(422, False, "The key is bound to another payload."),
    "too_many_waiting": Code(429, True, "Too many jobs of this action wait already."),
    "too_many_calls": Code(429, True, "Too many calls with this key; wait a little."),
    "too_many_logins": Code(429, True, "Too many failed logins; wait a little."),
    "internal": Code(500, True, "Something went wrong here; sending the same key again is safe."),
    "provider_away": Code(503, True, "The login provider does not answer."),
    "unavailable": Code(503, True, "The store cannot be reached; sending the same key again is safe."),
}


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong with an input: where (RFC 6901 pointer), which rule, and what to do."""

    pointer: str
    rule: str
    message: str


class DeedboxError(Exception):
    """Anything Deedbox refuses with a code of the table above."""

    def __init__(self, code: str, detail: str, *, problems: tuple[Problem, ...] = (), retry_after: float | None = None) -> None:
        """`detail` is a sentence for the caller; `problems` point at fields; `retry_after` is in seconds."""
        super().__init__(detail)
        self.code = code
        self.detail = detail
        self.problems = problems
        self.retry_after = retry_after

    @property
    def sentence(self) -> str:
        """The detail and what is wrong with each field, in one line for a person."""
        return " ".join([self.detail, *(f"{problem.pointer or '/'}: {problem.message}" for problem in self.problems)])

    @property
    def status(self) -> int:
        """The HTTP status of the code."""
        return CODES[self.code].status


class InvalidValueError(ValueError):
    """A value that cannot be kept, with the pointer to it."""

    def __init__(self, pointer: str, rule: str, message: str) -> None:
        """`pointer` is RFC 6901, relative to the value that was checked."""
        super().__init__(f"{pointer or '/'}: {message}")
        self.problem = Problem(pointer, rule, message)
