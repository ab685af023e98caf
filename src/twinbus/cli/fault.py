"""`twinbus fault set|clear|list`: cause outages in a running broker that allows them.

Faults are managed over HTTP on the namespace's port, which no fault affects, so they can always be cleared.
"""

from __future__ import annotations

import json
from typing import Annotated, Any
from urllib.parse import quote

import typer

from twinbus.auth.sas import sign
from twinbus.cli.completion import entity_names
from twinbus.cli.group import group
from twinbus.cli.settings import Json
from twinbus.cli.target import TargetNamespace, connected
from twinbus.cli.view import show_json, show_table
from twinbus.clock import SystemClock
from twinbus.errors import ConfigError, ConnectionForcedError, ServiceError

faults = group(
    """Inject faults into a running broker. The broker must be started with --allow-faults.

\b
Example:
  twinbus fault set down
  twinbus fault clear
"""
)

_PATH = "/$faults"
_PATIENCE_S = 30
_TOKEN_S = 300

Entity = Annotated[
    str | None,
    typer.Option(
        "--entity", "-e", metavar="PATH", help="Only this entity [the whole namespace].", autocompletion=entity_names
    ),
]


@faults.command("set")
@connected
def set_fault(
    target: TargetNamespace,
    mode: Annotated[str, typer.Argument(metavar="MODE", help="down, silent, slow, refusing or lossy.")],
    entity: Entity = None,
    delay_ms: Annotated[int, typer.Option(help="With slow: the delay in milliseconds.")] = 1_000,
    refusal: Annotated[
        str, typer.Option(help="With refusing: the error, server-busy or internal-error.")
    ] = "server-busy",
    as_json: Json = False,
) -> None:
    """Set a fault on the namespace or on one entity.

    \b
    Example:
      twinbus fault set slow --entity orders --delay-ms 500
      twinbus fault set down
    """
    fields = {"mode": mode, "entity": entity, "delay_ms": delay_ms, "refusal": refusal}
    _show(_ask("PUT", "", fields, target), as_json)


@faults.command()
@connected
def clear(
    target: TargetNamespace,
    entity: Entity = None,
    as_json: Json = False,
) -> None:
    """Clear all faults, or those of one entity.

    \b
    Example:
      twinbus fault clear --entity orders
    """
    query = "" if entity is None else f"?entity={quote(entity, safe='')}"
    _show(_ask("DELETE", query, None, target), as_json)


@faults.command("list")
@connected
def list_faults(
    target: TargetNamespace,
    as_json: Json = False,
) -> None:
    """List active faults.

    \b
    Example:
      twinbus fault list
    """
    _show(_ask("GET", "", None, target), as_json)


def _ask(
    method: str,
    query: str,
    fields: dict[str, Any] | None,
    target: TargetNamespace,
) -> dict[str, Any]:
    from http.client import HTTPConnection, HTTPException

    broker = target.broker
    if broker.port is None or not broker.key_name or not broker.key:
        raise ConfigError("Faults need a connection string with a port, a key name and a key.")
    expiry_s = SystemClock().now_ms() // 1000 + _TOKEN_S
    token = sign(f"http://{broker.host}:{broker.port}/", broker.key_name, broker.key, expiry_s)
    connection = HTTPConnection(broker.host, broker.port, timeout=_PATIENCE_S)
    try:
        connection.request(
            method,
            _PATH + query,
            body=None if fields is None else json.dumps(fields),
            headers={"Authorization": token, "Content-Type": "application/json"},
        )
        response = connection.getresponse()
        body = response.read()
    except (OSError, HTTPException) as error:
        raise ConnectionForcedError(f"No connection to {broker.host}:{broker.port}: {error}.") from None
    finally:
        connection.close()
    if response.status != 200:
        raise ServiceError(_detail(body) or f"The broker answered {response.status}.")
    answer: dict[str, Any] = json.loads(body)
    return answer


def _detail(body: bytes) -> str | None:
    from xml.etree import ElementTree

    try:
        return ElementTree.fromstring(body).findtext("Detail")  # noqa: S314 - our own broker's answer
    except ElementTree.ParseError:
        return None


def _show(answer: dict[str, Any], as_json: bool) -> None:
    if as_json:
        show_json(answer)
        return
    if not answer["faults"]:
        typer.echo("No faults." if answer["allowed"] else "No faults; this broker does not allow any (--allow-faults).")
        return
    show_table(
        ["entity", "mode", "delay ms", "refusal"],
        [
            [fault["entity"] or "(namespace)", fault["mode"], str(fault["delay_ms"]), fault["refusal"]]
            for fault in answer["faults"]
        ],
    )
