"""Read one entity's settings from the administration API: a blocking HTTP GET."""

from __future__ import annotations

import http.client
import ssl
from typing import Final
from urllib.parse import quote
from xml.etree.ElementTree import ParseError

from defusedxml import ElementTree

from twinbus.auth.connection_string import ConnectionString
from twinbus.auth.sas import sign
from twinbus.client.conditions import request_error
from twinbus.client.tls import tls_context
from twinbus.clock import Clock, SystemClock
from twinbus.errors import ConnectionForcedError, EntityNotFoundError, InternalError

_VERSION: Final = "2021-05"
_TIMEOUT_S: Final = 20.0
_TOKEN_S: Final = 300
_BYTES_MAX: Final = 1024 * 1024
_SCHEMA: Final = "{http://schemas.microsoft.com/netservices/2010/10/servicebus/connect}"


def describe(
    connection_string: str, path: str, *, ca_file: str | None = None, clock: Clock | None = None
) -> dict[str, str]:
    """Return the settings of a queue, topic or subscription under the service's own names; raise ServiceError on
    failure."""
    parsed = ConnectionString.parse(connection_string)
    target = f"/{quote(path)}?api-version={_VERSION}"
    token = parsed.signature
    if token is None:
        expiry_s = (clock or SystemClock()).now_ms() // 1000 + _TOKEN_S
        token = sign(f"http://{parsed.netloc}/{path}", parsed.key_name or "", parsed.key or "", expiry_s)
    connection = _connection(parsed, ca_file)
    try:
        connection.request("GET", target, headers={"Authorization": token})
        answer = connection.getresponse()
        text = answer.read(_BYTES_MAX)
    except (OSError, http.client.HTTPException) as error:
        raise ConnectionForcedError(f"The administration API does not answer: {error}.") from None
    finally:
        connection.close()
    if answer.status != 200:
        raise request_error(answer.status, None, f"The administration API answers {answer.status}.")
    try:
        tree = ElementTree.fromstring(text)
    except (ParseError, ValueError):
        raise InternalError("The administration API's answer cannot be decoded.") from None
    found = {
        element.tag.removeprefix(_SCHEMA): element.text or ""
        for element in tree.iter()
        if isinstance(element.tag, str) and element.tag.startswith(_SCHEMA)
    }
    if not found:
        # Of what does not exist the service shows an empty feed.
        raise EntityNotFoundError(f"The messaging entity {path!r} could not be found.")
    return found


def _connection(parsed: ConnectionString, ca_file: str | None) -> http.client.HTTPConnection:
    if parsed.emulator:
        return http.client.HTTPConnection(parsed.host, parsed.port or 80, timeout=_TIMEOUT_S)
    context: ssl.SSLContext = tls_context(ca_file)
    return http.client.HTTPSConnection(parsed.host, parsed.port or 443, timeout=_TIMEOUT_S, context=context)
