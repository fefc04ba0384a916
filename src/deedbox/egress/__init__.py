"""The one way out: every outgoing connection is checked at the address it really dials, bounded and never redirected."""

from deedbox.egress.address import EgressPolicy, check_address, parse_host
from deedbox.egress.client import Answer, EgressClient, async_http_client
from deedbox.egress.dial import dial
from deedbox.egress.failures import EgressRefused, MaybeSent, NotSent, failure_in
from deedbox.egress.transport import GuardedTransport, check_url

__all__ = [
    "Answer",
    "EgressClient",
    "EgressPolicy",
    "EgressRefused",
    "GuardedTransport",
    "MaybeSent",
    "NotSent",
    "async_http_client",
    "check_address",
    "check_url",
    "dial",
    "failure_in",
    "parse_host",
]
