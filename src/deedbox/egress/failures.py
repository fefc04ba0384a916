"""The three ways in which an outgoing call fails, told apart by what they mean for sending again."""

from deedbox.model.failure import ActionFailure


class EgressRefused(ActionFailure):
    """The destination may not be reached by policy. Final at once: class `denied`, code `egress_blocked`."""

    def __init__(self, message: str) -> None:
        """`message` names the host and the kind of range, never a credential and never a resolved address."""
        super().__init__("denied", "egress_blocked", message)


class NotSent(ActionFailure):
    """Not a byte of the request left: it is certain that the other side did nothing. Class `not_sent`."""

    def __init__(self, code: str, message: str, *, phase: str) -> None:
        """`phase` is how far it got: `resolve`, `connect` or `tls`."""
        super().__init__("not_sent", code, message)
        self.phase = phase


class MaybeSent(ActionFailure):
    """The request left at least in part and no readable answer came: the other side may have acted. Class `ambiguous`."""

    def __init__(self, code: str, message: str, *, phase: str) -> None:
        """`phase` is how far it got: `request_headers`, `request_body`, `response_headers` or `response_body`."""
        super().__init__("ambiguous", code, message)
        self.phase = phase


def failure_in(error: BaseException) -> ActionFailure | None:
    """The typed failure inside an error that a library wrapped around ours, or None.

    SDKs turn whatever a transport raises into their own connection error; the refusal must stay recognisable, for it
    is final and must not be tried again.
    """
    seen: set[int] = set()
    current: BaseException | None = error
    while current is not None and id(current) not in seen:
        if isinstance(current, ActionFailure):
            return current
        seen.add(id(current))
        current = current.__cause__ or current.__context__
    return None
