"""What a client reads before it asks for a token: the protected resource's description (RFC 9728)."""

import json
from urllib.parse import urlsplit

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from deedbox.access.bearer import FACES, Bearer, Face
from deedbox.http.routing import Handler, route

_KEEP_S = 300


def resource_routes(bearer: Bearer) -> list[BaseRoute]:
    """One route for the whole server and one for each face, each where the public URL says it is."""
    return [route(urlsplit(bearer.metadata_url(face)).path, GET=_telling(bearer, face)) for face in (None, *FACES)]


def _telling(bearer: Bearer, face: Face | None) -> Handler:
    described = json.dumps(bearer.metadata(face)).encode()
    # Clients that are pages read it from their own origin; it holds no data and takes no credentials.
    headers = {"Cache-Control": f"public, max-age={_KEEP_S}", "Access-Control-Allow-Origin": "*"}

    async def tell(_request: Request) -> Response:
        return Response(described, media_type="application/json", headers=headers)

    return tell
