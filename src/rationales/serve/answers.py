"""What the servers share: the JSON of a request, files of the package, errors of one sentence."""

from __future__ import annotations

import json
from importlib.resources import files
from typing import Any

import anyio
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response

from rationales.errors import first_line


async def json_body(
    request: Request, known: set[str], most: int, patience: float
) -> dict[str, Any]:
    """The JSON object of a request, with no other keys than the known ones.

    It may have ``most`` bytes, and take ``patience`` seconds to arrive.
    """
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise HTTPException(415, "send JSON, with the header Content-Type: application/json")
    data = bytearray()
    try:
        with anyio.fail_after(patience):
            async for chunk in request.stream():
                data += chunk
                if len(data) > most:
                    raise HTTPException(413, f"the request has more than {most:,} bytes")
    except TimeoutError as error:
        raise HTTPException(408, "the request took too long to arrive") from error
    except ClientDisconnect as error:
        raise HTTPException(400, "the client has gone") from error
    try:
        body = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise HTTPException(422, f"the request is not JSON: {first_line(error)}") from error
    if not isinstance(body, dict):
        raise HTTPException(422, "the request must be a JSON object")
    for name in body:
        if name not in known:
            expected = ", ".join(sorted(known))
            raise HTTPException(422, f"unknown field {name[:40]!r}: the fields are {expected}")
    return body


async def asset(package: str, name: str, kind: str, request: Request) -> Response:
    """A file of the package."""
    data = files("rationales").joinpath(package, name).read_bytes()
    return Response(data, media_type=f"{kind}; charset=utf-8")


async def http_error(request: Request, error: Exception) -> Response:
    """One clear sentence, with the status that fits."""
    if isinstance(error, HTTPException):
        return JSONResponse({"error": error.detail}, error.status_code)
    return JSONResponse({"error": str(error)}, 422)
