"""An identity provider for tests: issues codes and tokens, and can be wrong in every way."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import threading
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Any
from urllib.parse import parse_qs, unquote_plus, urlencode, urlsplit

from aiohttp import web

from tests.auth.jwt_issuer import Issuer

CLIENT = "the-console"
AUDIENCE = "api://bus"
CODE = "planted-code-of-the-provider"

Reply = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Provider:
    """Serves `/token` on this machine; `authorize` plays the person and the provider's pages."""

    def __init__(self) -> None:
        self.issuer = Issuer()
        # What the token endpoint was asked, and with which Authorization.
        self.asked: list[dict[str, str]] = []
        self.authorizations: list[str] = []
        # Replaces the token endpoint's answer.
        self.reply: Reply | None = None
        # Claims that differ from those of a right token; None leaves one out.
        self.access: dict[str, Any] = {}
        self.identity: dict[str, Any] = {}
        # When tokens are issued.
        self.now_s = 0
        # The request that the browser brought last.
        self._request: dict[str, str] = {}
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._runner: web.AppRunner
        self.port = 0

    def __enter__(self) -> Provider:
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._serve(), self._loop).result(10)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        asyncio.run_coroutine_threadsafe(self._runner.cleanup(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    @property
    def base(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def _serve(self) -> None:
        app = web.Application()
        app.router.add_post("/token", self._token)
        app.router.add_post("/elsewhere", self._token)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        self.port = self._runner.addresses[0][1]

    def authorize(self, location: str, **answer: str) -> str:
        """Sign in at the address that the console sent the browser to; returns the path that it comes back to."""
        parts = urlsplit(location)
        assert location.startswith(f"{self.base}/authorize?")
        self._request = {name: value for name, (value,) in parse_qs(parts.query).items()}
        query = answer or {"code": CODE}
        back = urlsplit(self._request["redirect_uri"])
        return f"{back.path}?{urlencode({'state': self._request['state'], **query})}"

    async def _token(self, request: web.Request) -> web.StreamResponse:
        fields = {name: str(value) for name, value in (await request.post()).items()}
        self.asked.append(fields)
        self.authorizations.append(request.headers.get("Authorization", ""))
        if self.reply is not None:
            return await self.reply(request)
        digest = hashlib.sha256(fields.get("code_verifier", "").encode()).digest()
        if base64.urlsafe_b64encode(digest).rstrip(b"=").decode() != self._request["code_challenge"]:
            return web.json_response({"error": "invalid_grant"}, status=400)
        return web.json_response(self.tokens())

    def tokens(self) -> dict[str, Any]:
        times = {"exp": self.now_s + 3600, "nbf": self.now_s - 5}
        access = {"aud": AUDIENCE, "roles": ["operators"], **times, **self.access}
        identity = {
            "aud": CLIENT,
            "nonce": self._request.get("nonce"),
            "preferred_username": "ann@contoso.example",
            "roles": None,
            **times,
            **self.identity,
        }
        return {
            "access_token": self.issuer.token("RS256", **access),
            "id_token": self.issuer.token("ES256", **identity),
            "token_type": "Bearer",
        }


def basic(authorization: str) -> tuple[str, str]:
    """Client and secret of an Authorization header."""
    client, _, secret = base64.b64decode(authorization.removeprefix("Basic ")).decode().partition(":")
    return unquote_plus(client), unquote_plus(secret)
