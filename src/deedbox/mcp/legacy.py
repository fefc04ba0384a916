"""The older era (`initialize`, up to 2025-11-25) without a session anywhere: what a session would know is sealed into its id.

Whoever holds the shared key can read an id, so that any replica answers, after any restart. An id that cannot be read is
taken for none: the caller is served as one of whom nothing is known.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mcp.server.request_state import AESGCMRequestStateCodec, InvalidRequestState
from mcp_types import DEFAULT_NEGOTIATED_VERSION
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS, LATEST_HANDSHAKE_VERSION

from deedbox.mcp.wire import object_of
from deedbox.model.identity import Principal

SESSION_HEADER = "Mcp-Session-Id"
_MOST_ID = 2048


@dataclass(frozen=True, slots=True)
class Known:
    """What is known of a caller of the older era: the protocol's version, and what it said that it can do."""

    version: str
    capabilities: Mapping[str, Any] | None = None
    client: Mapping[str, Any] | None = None


class Sessions:
    """Gives out and reads ids. They grant nothing: every request is authenticated by itself."""

    def __init__(self, keys: Sequence[bytes]) -> None:
        """`keys` are shared by all replicas; the first seals, and all are read."""
        self._codec = AESGCMRequestStateCodec(keys)

    def open(self, principal: Principal, params: Mapping[str, Any] | None) -> tuple[Known, str | None]:
        """What `initialize` says, and the id that says it again; None where it says too much to be carried along."""
        given = params or {}
        version = given.get("protocolVersion")
        version = version if version in HANDSHAKE_PROTOCOL_VERSIONS else LATEST_HANDSHAKE_VERSION
        known = Known(version, _object(given.get("capabilities")), _object(given.get("clientInfo")))
        sealed = self._codec.seal(
            json.dumps(
                {"v": known.version, "c": known.capabilities, "i": known.client, "p": principal.principal_id},
                separators=(",", ":"),
            ).encode()
        )
        return known, sealed if len(sealed) <= _MOST_ID else None

    def read(self, principal: Principal, session_id: str | None, version: str | None) -> Known:
        """What is known of a caller, from its id and the header that names the version."""
        said = self._said(principal, session_id) if session_id and len(session_id) <= _MOST_ID else None
        chosen = version or (said or {}).get("v") or DEFAULT_NEGOTIATED_VERSION
        return Known(str(chosen), _object((said or {}).get("c")), _object((said or {}).get("i")))

    def _said(self, principal: Principal, session_id: str) -> dict[str, Any] | None:
        try:
            said = json.loads(self._codec.unseal(session_id))
        except (InvalidRequestState, ValueError):
            return None
        return said if said.get("p") == principal.principal_id else None


def _object(value: object) -> dict[str, Any] | None:
    found = object_of(value)
    return found if isinstance(value, dict) else None
