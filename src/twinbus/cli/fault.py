"""`twinbus fault set|clear|list`: outages on purpose in a running broker that allows them.

Faults are set by HTTP on the namespace's port, which no fault touches, so that what was set can be cleared.
"""

from __future__ import annotations

import json
from http.client import HTTPConnection, HTTPException
from typing import Annotated, Any
from urllib.parse import quote
from xml.etree import ElementTree

import typer

from twinbus.auth.sas import sign
from twinbus.cli.directory import find
from twinbus.cli.queue import ConnectionString, Json, Namespace, ReadyFile
from twinbus.cli.view import show_json, show_table
from twinbus.clock import SystemClock
from twinbus.errors import ConfigError, ServiceError

faults = typer.Typer(
    help="Outages on purpose, in a broker started with --allow-faults.", no_args_is_help=True, rich_markup_mode=None
)

_PATH = "/$faults"
_PATIENCE_S = 30
_TOKEN_S = 300

Entity = Annotated[str | None, typer.Option("--entity", "-e", metavar="PATH", help="One entity, not the namespace.")]


@faults.command("set")
def set_fault(
    mode: Annotated[str, typer.Argument(metavar="MODE", help="down, silent, slow, refusing or lossy.")],
    entity: Entity = None,
    delay_ms: Annotated[int, typer.Option(help="How slow `slow` is.")] = 1_000,
    refusal: Annotated[str, typer.Option(help="What `refusing` says: server-busy or internal-error.")] = "server-busy",
    connection_string: ConnectionString = None,
    ready_file: ReadyFile = None,
    namespace: Namespace = None,
    as_json: Json = False,
) -> None:
    """Make the namespace, or one entity, fail.

    Example: twinbus fault set slow --entity orders --delay-ms 500
    """
    fields = {"mode": mode, "entity": entity, "delay_ms": delay_ms, "refusal": refusal}
    _show(_ask("PUT", "", fields, connection_string, ready_file, namespace), as_json)


@faults.command()
def clear(
    entity: Entity = None,
    connection_string: ConnectionString = None,
    ready_file: ReadyFile = None,
    namespace: Namespace = None,
    as_json: Json = False,
) -> None:
    """End every fault, or one entity's."""
    query = "" if entity is None else f"?entity={quote(entity, safe='')}"
    _show(_ask("DELETE", query, None, connection_string, ready_file, namespace), as_json)


@faults.command("list")
def list_faults(
    connection_string: ConnectionString = None,
    ready_file: ReadyFile = None,
    namespace: Namespace = None,
    as_json: Json = False,
) -> None:
    """Show the faults there are."""
    _show(_ask("GET", "", None, connection_string, ready_file, namespace), as_json)


def _ask(
    method: str,
    query: str,
    fields: dict[str, Any] | None,
    connection_string: str | None,
    ready_file: Any,
    namespace: str | None,
) -> dict[str, Any]:
    broker = find(connection_string, ready_file, namespace)
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
        raise ServiceError(f"The broker at {broker.host}:{broker.port} does not answer: {error}.") from None
    finally:
        connection.close()
    if response.status != 200:
        raise ServiceError(_detail(body) or f"The broker answered {response.status}.")
    answer: dict[str, Any] = json.loads(body)
    return answer


def _detail(body: bytes) -> str | None:
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
