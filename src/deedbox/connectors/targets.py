"""The named HTTP destinations of settings, and the one way to address them."""

import re
from collections.abc import Mapping
from urllib.parse import unquote

from deedbox.connectors.settings import ConnectorSettings, HttpTargetConfig
from deedbox.connectors.signing import sign, wall_clock_s
from deedbox.egress import Answer, EgressClient, EgressPolicy, EgressRefused, check_url
from deedbox.extend.connector import TargetLimits

_BAD_IN_PATH = re.compile(r"[\x00-\x20\x7f-\xa0\\#\u2028\u2029\ud800-\udfff]")
MAX_PATH = 2000


def check_path(path: str) -> str:
    """The path unchanged if it stays below a base URL; raises ValueError otherwise.

    It begins with one slash, may have a query, and has no blanks, control characters, backslashes, fragment or dot
    segments, percent-encoded ones included.
    """
    if not path.startswith("/") or len(path) > MAX_PATH or _BAD_IN_PATH.search(path):
        raise ValueError("path: must begin with / and have no blanks, control characters, backslashes or fragment")
    # Decoded twice: some servers do so behind a proxy.
    plain = unquote(unquote(path.partition("?")[0]))
    if plain.startswith("//") or "\\" in plain or any(segment in {".", ".."} for segment in plain.split("/")):
        raise ValueError("path: must not leave the target's base URL")
    return path


def host_and_port(url: str) -> tuple[str, int]:
    """What is dialled for a URL. Raises EgressRefused for one that cannot be read."""
    read = check_url(url)
    return read.host, read.port or {"http": 80, "https": 443}[read.scheme]


class HttpTargets:
    """The targets of settings behind one egress client. A caller names a target and a path, never a host or header."""

    def __init__(self, settings: ConnectorSettings, egress: EgressPolicy) -> None:
        """Nothing is opened until the first call."""
        self._targets = {target.name: target for target in settings.http}
        self._client = EgressClient(egress)

    def get(self, name: str) -> HttpTargetConfig | None:
        """The target of that name, if settings have it."""
        return self._targets.get(name)

    def limits(self) -> dict[str, TargetLimits]:
        """What settings say of how fast and in what order each target is sent to."""
        return {name: TargetLimits(one.rate_per_s, one.burst, one.order_by) for name, one in self._targets.items()}

    async def call(
        self,
        target: HttpTargetConfig,
        method: str,
        path: str,
        *,
        deadline_s: float,
        content: bytes | None = None,
        key: str | None = None,
        extra: Mapping[str, str] | None = None,
    ) -> Answer:
        """One exchange with the target's credentials. `key` goes out as `Idempotency-Key`, and signs where the target signs.

        Raises ValueError for a path that `check_path` refuses, and what EgressClient raises.
        """
        base = check_url(target.base_url)
        url = check_url(target.base_url + check_path(path))
        if (url.scheme, url.host, url.port) != (base.scheme, base.host, base.port):
            raise EgressRefused("The path leads away from the target's host.")
        headers = dict(extra or {}) | {name: value.get_secret_value() for name, value in target.headers.items()}
        headers["Accept"] = "application/json"
        if target.bearer is not None:
            headers["Authorization"] = f"Bearer {target.bearer.get_secret_value()}"
        if content is not None:
            headers["Content-Type"] = "application/json"
        if key is not None:
            headers["Idempotency-Key"] = key
            headers |= sign(target.signing, key, content or b"", at_s=wall_clock_s())
        return await self._client.request(method, str(url), headers=headers, content=content, deadline_s=deadline_s)

    async def aclose(self) -> None:
        """Close what is open."""
        await self._client.aclose()
