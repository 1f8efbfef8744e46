"""
The console: static files under /console, the same for everybody.

Here: the files in memory, two of them made of the contract's words (``problems.js``, ``sentences.js``); their headers.
Not here: what they show, which a page asks of /v1 as any program does; the pages themselves (``api/console``).

Rule 1: the files hold nothing of a fleet, so they are open to everybody: a browser cannot show a token before it has a
page to type it into. All that the page then asks has its role (``roles``).
Rule 2: nothing but these files runs or is loaded in the page: no inline script or style, no other origin, no frame
around it, no markup made of text (``POLICY``). A name of a set or host is text, whatever is in it.
Rule 3: files are read once, at the start, and found by name in a table: no path of a request reaches the disk.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from functools import partial
from importlib import resources
from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Path, Request
from starlette.responses import Response

from rollcall_ha.api.rest.schemas import only_problems
from rollcall_ha.controller.contract.problems import PROBLEMS
from rollcall_ha.controller.contract.sentences import SENTENCES, sections
from rollcall_ha.controller.runtime.queries import NotFound

PAGE = "index.html"
MEDIA_TYPES: Mapping[str, str] = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}
_RULES: Mapping[str, str] = {
    "default-src": "'none'",
    "script-src": "'self'",
    "style-src": "'self'",
    "img-src": "'self'",
    "connect-src": "'self'",
    "base-uri": "'none'",
    "form-action": "'none'",
    "frame-ancestors": "'none'",
    # No text becomes markup, also not by a mistake of ours: the browser throws instead.
    "require-trusted-types-for": "'script'",
    "trusted-types": "'none'",
}
POLICY = "; ".join(f"{name} {value}" for name, value in _RULES.items())
HEADERS: Mapping[str, str] = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=(), payment=(), usb=()",
    # Asked for each time, and answered by 304: after an upgrade nobody has half of the old page.
    "Cache-Control": "no-cache",
}


class _File(msgspec.Struct, frozen=True):
    content: bytes
    media_type: str
    tag: str


def load_files() -> dict[str, _File]:
    """Every file of the console by name."""
    problems = {str(code): {"words": kind.words, "alarm": kind.alarm} for code, kind in PROBLEMS.items()}
    sentences = {kind: sections(kind) for kind in SENTENCES}
    found = {"problems.js": _made("PROBLEMS", problems), "sentences.js": _made("SENTENCES", sentences)}
    for entry in (resources.files("rollcall_ha.api") / "console").iterdir():
        kind = entry.name.rpartition(".")[2]
        if kind in MEDIA_TYPES:
            found[entry.name] = _file(kind, entry.read_bytes())
    return found


def _file(kind: str, content: bytes) -> _File:
    return _File(content, MEDIA_TYPES[kind], f'"{hashlib.sha256(content).hexdigest()[:32]}"')


def _made(name: str, words: object) -> _File:
    """Words of the contract, which the command line reads, too: a copy in a file would differ soon."""
    return _file("js", f"export const {name} = ".encode() + msgspec.json.encode(words) + b";\n")


class Console:
    """The routes /console and /console/FILE; files are read once, at the start."""

    def __init__(self) -> None:
        """Raises ``OSError`` if a file of the console is not where it was installed."""
        self._files = load_files()
        self.router = APIRouter()
        add = partial(self.router.add_api_route, methods=["GET"], tags=["console"])
        page, kinds = "getConsole", sorted({kind.partition(";")[0] for kind in MEDIA_TYPES.values()})
        add("/console", self.console, operation_id=page, responses=_responses("text/html"))
        add("/console/", self.console, operation_id=page, include_in_schema=False)
        add("/console/{file}", self.console_file, operation_id="getConsoleFile", responses=_responses(*kinds))

    async def console(self, request: Request) -> Response:
        """GET /console: the one HTML page; what it shows, it asks of /v1."""
        return self._answer(request, PAGE)

    async def console_file(self, request: Request, file: Annotated[str, Path(max_length=64)]) -> Response:
        """A script, style or picture of the page."""
        return self._answer(request, file)

    def _answer(self, request: Request, name: str) -> Response:
        found = self._files.get(name)
        if found is None:
            raise NotFound(what=f"the console has no file {name!r}", hint="open /console")
        headers = {**HEADERS, "ETag": found.tag}
        if request.headers.get("If-None-Match") == found.tag:
            return Response(status_code=304, headers=headers)
        return Response(found.content, headers={**headers, "Content-Type": found.media_type})


def _responses(*media_types: str) -> dict[int | str, dict[str, Any]]:
    content = {kind: {"schema": {"type": "string"}} for kind in media_types}
    return {
        200: {"description": "The file.", "content": content},
        304: {"description": "It is the one that the caller has."},
        **only_problems(404, 421, 422),
    }
