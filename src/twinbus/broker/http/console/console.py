"""The console of all namespaces of a process, served on each of their ports.

| path | content |
|---|---|
| `/console` | the page |
| `/console/$assets/NAME` | its files |
| `/console/$api/NAME` | GET: a view, in JSON; POST: a command |
| `/console/$api/live?view=NAME` | a view, as a stream |
| `/console/$api/sign-in` | to an identity provider |
| `/console/signed-in` | from there; identity providers know this address |

No entity path can contain a dollar sign, so these paths cannot collide with an entity's address; those without one can,
but requests to an entity carry an api-version.

- Without a login a browser sees the page and only the name of the namespace on whose port it is.
- A command needs the login's second token in a header, and must come from a page of this very address.
- Development mode lets everybody in, so there the page must be opened under a name of this machine: any other name that
  resolves here belongs to somebody else's page.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import secrets
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, Literal
from urllib.parse import urlsplit

from aiohttp import web

from twinbus import __version__
from twinbus.auth.connection_string import ConnectionString
from twinbus.broker.configuration.config import is_loopback
from twinbus.broker.http.console import activity, backlog, chosen, commands, entities, messages, receiving
from twinbus.broker.http.console.answers import HEADERS, Refused, answer, refusal
from twinbus.broker.http.console.assets import PAGE, Assets
from twinbus.broker.http.console.exchange import SignInFailed
from twinbus.broker.http.console.hour import Hour
from twinbus.broker.http.console.logins import AccountLogin, Login, Logins, OpenedLogin
from twinbus.broker.http.console.sign_in import SIGNED_IN_PATH, SignIns, authorization_address, origin_of
from twinbus.broker.http.console.streams import Streams
from twinbus.broker.http.console.visitor import Visitor
from twinbus.broker.http.json_in import read_json
from twinbus.clock import Clock
from twinbus.errors import ArgumentError, ConfigError, ServiceError, UnauthorizedError
from twinbus.limits import CONSOLE_LOGIN_MS_MAX, CONSOLE_SIGN_IN_MS_MAX

if TYPE_CHECKING:
    from twinbus.broker.host import NamespaceHost
    from twinbus.broker.server import NamespaceEndpoint

logger = logging.getLogger(__name__)

CONSOLE_PATH: Final = "/console"
_ASSETS: Final = "/console/$assets/"
_API: Final = "/console/$api/"
TOKEN_HEADER: Final = "X-Console-Token"  # noqa: S105 - the name of a header

View = Callable[[Visitor, Mapping[str, str]], Any]
Command = Callable[[Visitor, dict[str, Any]], Awaitable[dict[str, Any]]]

_VIEWS: Final[dict[str, View]] = {
    "entities": entities.entities,
    "entity": entities.entity,
    "messages": messages.messages,
    "sessions": messages.sessions,
    "message": messages.message,
    "backlog": backlog.backlog,
    "connections": activity.connections,
    "rates": activity.rates,
}
# Views that may be streamed: none of them counts as an operation.
_LIVE: Final = ("namespaces", "entities", "entity", "backlog", "connections", "rates")
_COMMANDS: Final[dict[str, Command]] = {
    "send": commands.send,
    "create": commands.create,
    "update": commands.update,
    "delete": commands.delete,
    "purge": chosen.purge,
    "resubmit": chosen.resubmit,
    "remove": chosen.remove,
    "dead-letter": chosen.dead_letter,
    "resend": chosen.resend,
    "receive": receiving.receive,
    "settle": receiving.settle,
    "close-connection": activity.close_connection,
}


class Console:
    """The console of one process."""

    def __init__(
        self, hosts: Mapping[str, NamespaceHost], endpoints: Mapping[str, NamespaceEndpoint], clock: Clock
    ) -> None:
        # The namespaces and their addresses.
        self._hosts = hosts
        self._endpoints = endpoints
        self.logins = Logins(clock)
        self.sign_ins = SignIns(clock)
        # All ports of a machine share cookies, so each process uses its own cookie name.
        self._cookie = f"twinbus-console-{secrets.token_hex(4)}"
        self._assets = Assets()
        self.streams = Streams()
        self._hour = Hour()

    def close(self) -> None:
        """End the live streams: the broker is stopping."""
        self.streams.close()

    async def answer(self, host: NamespaceHost, request: web.BaseRequest, body: bytes) -> web.StreamResponse:
        """Answer one request to a namespace's port."""
        try:
            if host.dev:
                _check_name(request.host)
            path = request.rel_url.raw_path
            if path == SIGNED_IN_PATH:
                return await self._signed_in(host, request)
            if path.startswith(_API):
                name = path[len(_API) :]
                if request.method == "POST":
                    return await self._change(host, request, name, body)
                _only_get(request)
                return await self._show(host, request, name)
            _only_get(request)
            name = path[len(_ASSETS) :] if path.startswith(_ASSETS) else PAGE
            return self._assets.answer(name, request.headers.get("If-None-Match", ""))
        except Exception as error:
            return refusal(error)

    # --- looking ----------------------------------------------------------------------------------------------------

    async def _show(self, host: NamespaceHost, request: web.BaseRequest, name: str) -> web.StreamResponse:
        query = dict(request.query)
        if name == "login":
            return self._greet(host, request)
        if name == "sign-in":
            return self._sign_in(host, request)
        login = self._login(request, use=name != "live")
        if login is None:
            raise Refused(401, "Log in first.")
        visitor = Visitor(self._hosts, host, login)
        if name == "namespaces":
            return answer(entities.namespaces(visitor, self._endpoints))
        if name == "live":
            return await self._live(host, login, request, query)
        if name == "ledger":
            return answer(await self._hour.ledger(visitor, query.get("namespace", "")))
        if name == "events":
            return answer(await self._hour.events(visitor, query.get("namespace", "")))
        if name == "body":
            title, content = messages.body(visitor, query)
            headers = {**HEADERS, "Content-Disposition": f'attachment; filename="{title}"'}
            return web.Response(body=content, content_type="application/octet-stream", headers=headers)
        view = _VIEWS.get(name)
        if view is None:
            raise Refused(404, "The console has no such view.")
        return answer(view(visitor, query))

    async def _live(
        self, host: NamespaceHost, login: Login, request: web.BaseRequest, query: dict[str, str]
    ) -> web.StreamResponse:
        name = query.pop("view", "")
        if request.method != "GET":
            raise Refused(405, "A stream can only be read.")
        if name not in _LIVE:
            raise Refused(400, f"Live views are: {', '.join(_LIVE)}.")
        cookie = self._cookie_of(request)

        def look() -> Any:
            # An expired login ends its streams; watching does not keep it alive.
            if self.logins.find(cookie, use=False) is not login:
                raise Refused(401, "Your login has expired. Log in again.")
            visitor = Visitor(self._hosts, host, login)
            if name == "namespaces":
                return entities.namespaces(visitor, self._endpoints)
            return _VIEWS[name](visitor, query)

        return await self.streams.serve(request, look)

    def _greet(self, host: NamespaceHost, request: web.BaseRequest) -> web.Response:
        """What the page needs to start: whether it must ask for a key, and the token for commands."""
        login = self._login(request)
        cookie = ""
        if login is None and host.dev:
            cookie, login = self.logins.open()
        known = Visitor(self._hosts, host, login or Login(0)).hosts
        greeting: dict[str, Any] = {
            "version": __version__,
            "namespace": host.name,
            "namespaces": [each.name for each in known],
            "dev": host.dev,
            "sign_in": {each.name: each.sign_in.title for each in known if each.sign_in is not None and not each.dev},
        }
        if login is not None:
            greeting["token"] = login.token
        noted = self.sign_ins.noted(request.cookies.get(self._notice_cookie, ""))
        if noted is not None:
            greeting["problem"] = {"namespace": noted[0], "text": noted[1]}
        response = answer(greeting)
        if cookie:
            self._set_cookie(response, request, cookie)
        return response

    # --- changing ---------------------------------------------------------------------------------------------------

    async def _change(self, host: NamespaceHost, request: web.BaseRequest, name: str, body: bytes) -> web.Response:
        _check_origin(request)
        fields = _fields(request, body)
        if name == "login":
            return await self._enter(host, request, fields)
        login = self._login(request)
        if login is None:
            raise Refused(401, "Log in first.")
        given = request.headers.get(TOKEN_HEADER, "").encode("utf-8", "surrogateescape")
        if not secrets.compare_digest(given, login.token.encode()):
            raise Refused(403, "The request does not carry the page's token: reload the page.")
        if name == "logout":
            self.logins.close(self._cookie_of(request))
            response = answer({})
            response.del_cookie(self._cookie, path=CONSOLE_PATH)
            return response
        visitor = Visitor(self._hosts, host, login)
        if name == "connection-string":
            return answer(commands.connection_string(visitor, fields, self._endpoints))
        command = _COMMANDS.get(name)
        if command is None:
            raise Refused(404, "The console has no such command.")
        return answer(await command(visitor, fields))

    async def _enter(self, host: NamespaceHost, request: web.BaseRequest, fields: dict[str, Any]) -> web.Response:
        """Log in to a namespace with a policy's name and key, or with a connection string."""
        login = self._login(request)
        # Without a login nobody learns which other namespaces exist.
        target = Visitor(self._hosts, host, login or Login(0)).find(_word(fields, "namespace"))
        policy, key = _credentials(fields)
        try:
            opened = self.logins.enter(target, policy, key)
        except UnauthorizedError as error:
            target.refusals.add(error.reason, request.remote or "", policy=error.policy, entity="console")
            # Slow down guessing; a right key is never delayed.
            await asyncio.sleep(host.wrong_keys.pause_ms(request.remote or "") / 1000)
            raise Refused(401, f"The policy or the key is wrong for the namespace '{target.name}'.") from None
        cookie, login = self._open(self._cookie_of(request), target, opened)
        response = answer({"token": login.token})
        self._set_cookie(response, request, cookie)
        return response

    def _open(self, before: str, target: NamespaceHost, opened: OpenedLogin | AccountLogin) -> tuple[str, Login]:
        """Open a namespace. Each login gets a new cookie, so that a planted one is worthless."""
        cookie, login = self.logins.open(before)
        login.opened[target.name.lower()] = opened
        return cookie, login

    # --- signing in at an identity provider -------------------------------------------------------------------------

    def _sign_in(self, host: NamespaceHost, request: web.BaseRequest) -> web.Response:
        """Send the browser to the identity provider of a namespace."""
        name = request.query.get("namespace", "")
        try:
            _only_here(request)
            # A cookie of a login does not come back with the redirect of another site, so it is remembered.
            before = self._cookie_of(request)
            target = Visitor(self._hosts, host, self._login(request) or Login(0)).find(name)
            if target.sign_in is None or target.dev:
                raise Refused(404, f"The namespace '{target.name}' has no sign-in with an account. Log in with a key.")
            origin = origin_of(request.scheme, request.host, _ours(host, request))
            state, pending = self.sign_ins.begin(target, origin, request.remote or "", before)
        except ServiceError as error:
            return self._tell(request, host.name, error.text)
        response = _redirect(authorization_address(target.sign_in, state, pending))
        self._set_short_cookie(response, request, self._binding_cookie(state), pending.binding, SIGNED_IN_PATH, "Lax")
        return response

    async def _signed_in(self, host: NamespaceHost, request: web.BaseRequest) -> web.Response:
        """Finish a sign-in: the browser is back from the identity provider."""
        if request.method != "GET":
            raise Refused(405, "A sign-in is finished by a browser.")
        state, address = request.query.get("state", ""), request.remote or ""
        binding, name = self._binding_cookie(state), host.name
        try:
            try:
                pending = self.sign_ins.take(state, request.cookies.get(binding, ""))
            except SignInFailed:
                await asyncio.sleep(host.wrong_keys.pause_ms(address) / 1000)
                raise
            name = pending.namespace
            target = self._hosts[name]
            opened = await self.sign_ins.finish(target, host, pending, request.query, address)
        except SignInFailed as error:
            self._hosts[name].refusals.add("SignInFailed", address, entity="console")
            logger.info("a sign-in to the console of %s failed: %s", name, error.text)
            response = self._tell(request, name, error.text)
        else:
            logger.info("an account signed in to the console of %s", name)
            cookie, _ = self._open(pending.login, target, opened)
            response = _redirect(f"{CONSOLE_PATH}#/n/{name}")
            self._set_cookie(response, request, cookie)
        response.del_cookie(binding, path=SIGNED_IN_PATH)
        return response

    def _tell(self, request: web.BaseRequest, namespace: str, text: str) -> web.Response:
        """Show a sentence on the login page."""
        response = _redirect(CONSOLE_PATH)
        cookie = self.sign_ins.note(namespace, text)
        self._set_short_cookie(response, request, self._notice_cookie, cookie, CONSOLE_PATH, "Strict")
        return response

    # --- cookies ----------------------------------------------------------------------------------------------------

    def _cookie_of(self, request: web.BaseRequest) -> str:
        return request.cookies.get(self._cookie, "")

    @property
    def _notice_cookie(self) -> str:
        return f"{self._cookie}-notice"

    def _binding_cookie(self, state: str) -> str:
        """Each sign-in has its own, so that two tabs do not disturb each other."""
        return f"{self._cookie}-{hashlib.sha256(state.encode('utf-8', 'surrogateescape')).hexdigest()[:16]}"

    def _login(self, request: web.BaseRequest, *, use: bool = True) -> Login | None:
        return self.logins.find(self._cookie_of(request), use=use)

    def _set_cookie(self, response: web.Response, request: web.BaseRequest, cookie: str) -> None:
        response.set_cookie(
            self._cookie,
            cookie,
            path=CONSOLE_PATH,
            max_age=CONSOLE_LOGIN_MS_MAX // 1000,
            httponly=True,
            samesite="Strict",
            secure=request.scheme == "https",
        )

    @staticmethod
    def _set_short_cookie(
        response: web.Response,
        request: web.BaseRequest,
        name: str,
        value: str,
        path: str,
        samesite: Literal["Lax", "Strict"],
    ) -> None:
        response.set_cookie(
            name,
            value,
            path=path,
            max_age=CONSOLE_SIGN_IN_MS_MAX // 1000,
            httponly=True,
            samesite=samesite,
            secure=request.scheme == "https",
        )


def is_console(path: str, method: str, query: Mapping[str, str]) -> bool:
    """Whether a request is for the console. A queue may be named `console`; its admin requests carry an api-version."""
    if path.startswith((_ASSETS, _API)):
        return True
    ours = path == SIGNED_IN_PATH or path.rstrip("/") == CONSOLE_PATH
    return ours and method in ("GET", "HEAD") and "api-version" not in query


def _credentials(fields: dict[str, Any]) -> tuple[str, str]:
    text = _word(fields, "connection_string").strip()
    if not text:
        policy, key = _word(fields, "policy").strip(), _word(fields, "key").strip()
        if not policy or not key:
            raise ArgumentError("Give the policy's name and its key, or a connection string.")
        return policy, key
    try:
        found = ConnectionString.parse(text)
    except ConfigError as error:
        raise ArgumentError(str(error)) from None
    if found.key_name is None or found.key is None:
        raise ArgumentError("The connection string has a ready-made signature: paste one with SharedAccessKey.")
    return found.key_name, found.key


def _word(fields: dict[str, Any], name: str) -> str:
    value = fields.get(name, "")
    if not isinstance(value, str):
        raise ArgumentError(f"'{name}' must be a text.")
    return value


def _fields(request: web.BaseRequest, body: bytes) -> dict[str, Any]:
    if request.content_type != "application/json":
        raise Refused(415, "Commands are JSON.")
    try:
        fields = read_json(body)
    except ValueError:
        fields = None
    if not isinstance(fields, dict):
        raise Refused(400, "A command is a JSON object.")
    return fields


def _only_get(request: web.BaseRequest) -> None:
    if request.method not in ("GET", "HEAD"):
        raise Refused(405, "This can only be read.")


def _ours(host: NamespaceHost, request: web.BaseRequest) -> set[str]:
    """The broker's names, and the address at which this browser has reached it."""
    here = request.transport.get_extra_info("sockname") if request.transport is not None else None
    return {*host.served_names, *([str(here[0]).lower()] if here else [])}


def _redirect(address: str) -> web.Response:
    return web.Response(status=303, headers={**HEADERS, "Location": address})


def _only_here(request: web.BaseRequest) -> None:
    """Reject sign-ins that another site's page begins; typing the address is fine."""
    if request.method != "GET" or request.headers.get("Sec-Fetch-Site", "none") not in ("none", "same-origin"):
        raise Refused(403, "Begin the sign-in on the console's own page.")


def _check_origin(request: web.BaseRequest) -> None:
    """Reject commands from other sites; a browser says where a page is from."""
    site = request.headers.get("Sec-Fetch-Site", "same-origin")
    origin = request.headers.get("Origin")
    if site != "same-origin" or (origin is not None and _authority(origin) != request.host.lower()):
        raise Refused(403, "Commands must come from the console's own page.")


def _check_name(host: str) -> None:
    try:
        name = urlsplit(f"//{host}").hostname or ""
    except ValueError:
        name = ""
    if not (is_loopback(name) or name.endswith(".localhost")):
        raise Refused(403, "In development mode the console is at localhost: it lets everybody in.")


def _authority(origin: str) -> str:
    try:
        return urlsplit(origin).netloc.lower()
    except ValueError:
        return ""
