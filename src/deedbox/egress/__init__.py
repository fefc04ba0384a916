"""The one way out: every outgoing connection is checked at the address it really dials, bounded and never redirected.

The client's names are imported when they are first asked for: a policy can be written without waiting for an HTTP library.
"""

from typing import TYPE_CHECKING

from deedbox.egress.address import EgressPolicy, check_address, parse_host
from deedbox.egress.dial import dial
from deedbox.egress.failures import EgressRefused, MaybeSent, NotSent, failure_in
from deedbox.egress.reach import Reach, reach
from deedbox.lazily import named

if TYPE_CHECKING:
    from deedbox.egress.client import Answer, EgressClient, async_http_client
    from deedbox.egress.transport import GuardedTransport, check_url
else:
    _PLACES = {
        "Answer": "client",
        "EgressClient": "client",
        "GuardedTransport": "transport",
        "async_http_client": "client",
        "check_url": "transport",
    }

    __getattr__ = named(__name__, _PLACES)


__all__ = [
    "Answer",
    "EgressClient",
    "EgressPolicy",
    "EgressRefused",
    "GuardedTransport",
    "MaybeSent",
    "NotSent",
    "Reach",
    "async_http_client",
    "check_address",
    "check_url",
    "dial",
    "failure_in",
    "parse_host",
    "reach",
]
