"""The conformance run against an HTTP target of your own settings: the real provider, behind a relay that breaks.

What a provider really does with a key that comes twice only the provider can show. So the calls go to it, and what happens
to its answers on the way back is done by a relay on loopback. Every effect of the run is really made there: about twenty
things, which are the caller's to remove. Use a sandbox where there is one.
"""

from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import urlsplit

from deedbox.connectors.http import Http
from deedbox.connectors.settings import ConnectorSettings, HttpTargetConfig
from deedbox.connectors.templated import HttpTemplate
from deedbox.egress import EgressClient, EgressPolicy, EgressRefused, MaybeSent, NotSent
from deedbox.testing.conformance import conform
from deedbox.testing.http_provider import HttpProvider, Reply, Request
from deedbox.testing.report import Report

_HOP = frozenset({"host", "content-length", "connection", "user-agent", "accept-encoding"})
_UPSTREAM_S = 30.0
_FOR_THE_RUN = "2000-01-01 by the run that finds out"


async def prove(
    config: HttpTargetConfig,
    payload: Mapping[str, Any] | Callable[[str], Mapping[str, Any]],
    *,
    policy: EgressPolicy | None = None,
    deadline_s: float = 5.0,
) -> Report:
    """Run every check that a relay can play against the target; `deadline_s` is what the provider has to answer in.

    `report.proven(by)` gives what the target's `proven` is to say. Raises ValueError where the payload does not fit the target.
    """
    policy = policy or EgressPolicy()
    upstream = EgressClient(policy)
    parts = urlsplit(config.base_url)

    async def behind(request: Request) -> Reply:
        headers = {name: value for name, value in request.headers.items() if name not in _HOP}
        try:
            answer = await upstream.request(
                request.method,
                f"{parts.scheme}://{parts.netloc}{request.target}",
                headers=headers,
                content=request.body or None,
                deadline_s=_UPSTREAM_S,
            )
        except (EgressRefused, NotSent, MaybeSent) as error:
            return Reply(502, str(error).encode())
        kept = {name.title(): value for name, value in answer.headers.items() if name in {"location", "retry-after", "date"}}
        return Reply(answer.status, answer.body, kept)

    relay = HttpProvider(behind=behind)
    connector = HttpTemplate() if config.call is not None else Http()
    try:
        async with relay.running():
            changed: dict[str, Any] = {"base_url": relay.url + parts.path}
            if config.capability == "native_key":
                # Believed for the run, which is there to find out.
                changed["proven"] = _FOR_THE_RUN
            here = config.model_copy(update=changed)
            connector.bind(ConnectorSettings(http=(here,)), EgressPolicy(frozenset({f"{relay.host}:{relay.port}"})))
            return await conform(connector, relay, target=config.name, payload=payload, deadline_s=deadline_s)
    finally:
        await connector.aclose()
        await upstream.aclose()
