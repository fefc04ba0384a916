"""The provider of notes, which users have too: it lives in `deedbox.testing`."""

from deedbox.testing.http_provider import Fault, HttpProvider, Request

__all__ = ["Fault", "HttpProvider", "Request"]
