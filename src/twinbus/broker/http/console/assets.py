"""The page's files, loaded with the first request and looked up by name, never by path."""

from __future__ import annotations

import hashlib
from importlib import resources
from typing import Final, NamedTuple

from aiohttp import web

from twinbus.broker.http.console.answers import HEADERS, Refused

PAGE: Final = "console.html"

_TYPES: Final = {
    "html": "text/html",
    "css": "text/css",
    "js": "text/javascript",
    "svg": "image/svg+xml",
}


class Asset(NamedTuple):
    """One file."""

    content: bytes
    content_type: str
    etag: str


class Assets:
    """All files, by name."""

    def __init__(self) -> None:
        # A few dozen kilobytes.
        self._files: dict[str, Asset] = {}
        for file in (resources.files(__package__) / "assets").iterdir():
            content_type = _TYPES.get(file.name.rpartition(".")[2])
            if content_type is not None:
                content = file.read_bytes()
                etag = f'"{hashlib.sha256(content).hexdigest()[:32]}"'
                self._files[file.name] = Asset(content, content_type, etag)

    def answer(self, name: str, known: str) -> web.Response:
        """A file, or 304 if the browser has it; `known` is the If-None-Match header."""
        asset = self._files.get(name)
        if asset is None:
            raise Refused(404, "There is no such file of the console.")
        # Cached, but revalidated each time, so that a new version shows at once.
        headers = {**HEADERS, "Cache-Control": "no-cache", "ETag": asset.etag}
        if known == asset.etag:
            return web.Response(status=304, headers=headers)
        return web.Response(body=asset.content, content_type=asset.content_type, charset="utf-8", headers=headers)
