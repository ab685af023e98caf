"""`twinbus serve`: run the broker in the foreground until it is told to stop.

Rules:
- The command line takes precedence over the configuration file.
- The ready file appears once clients can connect, and is removed when the broker stops. systemd is told as well.
- SIGTERM and SIGINT shut down gracefully; a second signal does not wait.
"""

from __future__ import annotations

import asyncio
import functools
import json
import logging
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from twinbus.broker.configuration.config import (
    EMULATOR_NAME,
    LEDGER_NAME,
    LEDGER_OFF,
    LOOPBACK,
    BrokerConfig,
    NamespaceConfig,
    emulator_ports,
    is_loopback,
)
from twinbus.broker.configuration.file import load_config
from twinbus.broker.configuration.toml import TomlConfig
from twinbus.broker.security.keys import KEYS_FILE, write_private
from twinbus.cli.folders import default_data
from twinbus.cli.log import LogFormat, LogLevel, open_log
from twinbus.cli.supervisor import Supervisor
from twinbus.cli.view import redacted
from twinbus.errors import ConfigError, StoreError

if TYPE_CHECKING:
    from twinbus.broker.server import NamespaceEndpoint, Server


class Sku(StrEnum):
    STANDARD = "Standard"
    PREMIUM = "Premium"


def serve(
    namespace: Annotated[
        list[str] | None,
        typer.Option(
            "--namespace",
            "-n",
            metavar="NAME[:PORT]",
            help="Namespace to serve; without a port, or with port 0, a free one is used.",
        ),
    ] = None,
    data: Annotated[Path | None, typer.Option(metavar="DIR", help="Data folder.")] = None,
    config: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Configuration file: the emulator's config.json, or TOML.")
    ] = None,
    ledger: Annotated[
        Path | None,
        typer.Option(metavar="DIR|off", help="Folder of the operations ledger, or off [ledger in the data folder]."),
    ] = None,
    dev: Annotated[bool, typer.Option("--dev", help="Accept any key and any token, as the emulator does.")] = False,
    host: Annotated[str | None, typer.Option(metavar="ADDRESS", help=f"Address to listen on [{LOOPBACK}].")] = None,
    allow_plaintext: Annotated[
        bool, typer.Option("--allow-plaintext", help="Allow other machines to connect without TLS.")
    ] = False,
    allow_remote_dev: Annotated[
        bool,
        typer.Option("--allow-remote-dev", help="Allow other machines to connect in development mode, with any key."),
    ] = False,
    tls_certificate: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Certificate chain, PEM [issued by the development CA].")
    ] = None,
    tls_key: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Key of the certificate, PEM, unless it is in the same file.")
    ] = None,
    tls_name: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Additional host name for the development certificate; repeatable."),
    ] = None,
    amqp_port: Annotated[int | None, typer.Option(metavar="PORT", help="Additional AMQP port (usually 5672).")] = None,
    amqps_port: Annotated[
        int | None, typer.Option(metavar="PORT", help="Additional AMQPS port (usually 5671).")
    ] = None,
    admin_port: Annotated[
        int | None, typer.Option(metavar="PORT", help="Additional administration port (usually 5300).")
    ] = None,
    sku: Annotated[
        Sku | None,
        typer.Option(case_sensitive=False, help="Tier of the namespaces [that of the file, or Standard]."),
    ] = None,
    allow_faults: Annotated[
        bool, typer.Option("--allow-faults", help="Allow `twinbus fault` to inject faults.")
    ] = False,
    ready_file: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="File to write when clients can connect: addresses and connection strings, as JSON."
        ),
    ] = None,
    log_level: Annotated[LogLevel, typer.Option(help="Level of the log on standard error.")] = LogLevel.WARNING,
    log_format: Annotated[
        LogFormat, typer.Option(help="Form of the log: text, or a JSON object on each line.")
    ] = LogFormat.TEXT,
) -> None:
    """Run the broker until Ctrl-C. Data persists across restarts.

    With --dev and no namespace it stands in for the official emulator: namespace sbemulatorns, ports 5672 and 5300.

    \b
    Example:
      twinbus serve --dev
      twinbus serve --namespace north --namespace south --data ./data --ready-file ready.json
      twinbus serve --config config.json --dev
    """
    open_log(log_level, log_format)
    told = merged(
        load_config(config) if config is not None else TomlConfig(),
        namespaces=namespace or [],
        data=data,
        ledger=ledger,
        host=host,
        dev=dev,
        allow_plaintext=allow_plaintext,
        allow_faults=allow_faults,
        allow_remote_dev=allow_remote_dev,
        tls_certificate=tls_certificate,
        tls_key=tls_key,
        tls_names=tls_name or [],
        classic_ports={"amqp_port": amqp_port, "amqps_port": amqps_port, "admin_port": admin_port},
        sku=None if sku is None else sku.value,
    )
    told.check()
    if ready_file is not None:
        # A file left by a killed broker would mislead whoever waits for ours.
        ready_file.unlink(missing_ok=True)
    try:
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            runner.run(_serve(told, ready_file))
    finally:
        if ready_file is not None:
            ready_file.unlink(missing_ok=True)


def merged(
    file: TomlConfig,
    *,
    namespaces: list[str],
    data: Path | None,
    host: str | None,
    dev: bool,
    allow_plaintext: bool,
    ledger: Path | None = None,
    allow_faults: bool = False,
    allow_remote_dev: bool = False,
    tls_certificate: Path | None = None,
    tls_key: Path | None = None,
    tls_names: Sequence[str] = (),
    classic_ports: Mapping[str, int | None] | None = None,
    sku: str | None = None,
) -> BrokerConfig:
    """Merge the command line over the file's settings."""
    served = {each.name.lower(): each for each in file.namespaces}
    for text in namespaces:
        name, port = _name_and_port(text)
        known = served.get(name.lower())
        if known is None:
            served[name.lower()] = NamespaceConfig(name, port or 0)
        elif port is not None:
            admin_port = None if known.admin_port in known.optional_ports else known.admin_port
            served[name.lower()] = replace(known, port=port, admin_port=admin_port, optional_ports=frozenset())
    if not served and (dev or file.dev):
        served[EMULATOR_NAME] = emulator_ports(NamespaceConfig(EMULATOR_NAME))
    # `check` refuses a name that occurs twice in the file; the mapping above must not hide it.
    if len({each.name.lower() for each in file.namespaces}) != len(file.namespaces):
        BrokerConfig(file.namespaces).check()
    wanted = {name: port for name, port in (classic_ports or {}).items() if port is not None}
    if wanted and len(served) > 1:
        option = next(iter(wanted)).replace("_", "-")
        raise ConfigError(f"--{option} is for a single namespace: with several, give each its own in a TOML file.")
    taken = frozenset(wanted.values())
    each_wanted = [
        replace(
            each,
            **{**wanted, "port": 0 if each.port in taken & each.optional_ports else each.port},  # type: ignore[arg-type]
            optional_ports=each.optional_ports - taken,
            sku=sku or each.sku,
        )
        for each in served.values()
    ]
    folder = (data or file.data or default_data()).expanduser().absolute()
    ledger = ledger or file.ledger or folder / LEDGER_NAME
    return BrokerConfig(
        each_wanted,
        data=folder,
        ledger=None if ledger == Path(LEDGER_OFF) else ledger.expanduser().absolute(),
        host=host or file.host or LOOPBACK,
        dev=dev or bool(file.dev),
        allow_plaintext=allow_plaintext or bool(file.allow_plaintext),
        allow_faults=allow_faults,
        allow_remote_dev=allow_remote_dev,
        tls_certificate=tls_certificate or file.tls_certificate,
        # A key belongs to its certificate: the file's key does not fit a certificate from the command line.
        tls_key=tls_key if tls_certificate is not None or tls_key is not None else file.tls_key,
        tls_names=[*tls_names, *file.tls_names],
    )


def _name_and_port(text: str) -> tuple[str, int | None]:
    name, colon, port = text.partition(":")
    if not colon:
        return name, None
    if not (port.isascii() and port.isdigit() and int(port[:6]) <= 65535):
        raise ConfigError(f"--namespace {text!r}: the port must be a number from 0 to 65535.")
    return name, int(port)


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:
        return None
    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory


async def _serve(config: BrokerConfig, ready_file: Path | None) -> None:
    from twinbus.broker.server import Server
    from twinbus.broker.tuning import spare_recovery, tune_process

    stop = asyncio.Event()
    _on_signals(stop)
    supervisor = Supervisor()
    server = Server(config)
    spare_recovery()
    await server.start()
    tune_process()
    try:
        if ready_file is not None:
            # Whoever waits for the file may connect with TLS next, and needs the CA for that.
            if not server.certificates.own and not server.certificates.has_ca:
                await asyncio.get_running_loop().run_in_executor(None, _prepare_tls, server)
            _write_ready(ready_file, server.endpoints)
            # Keep the file valid after the root key is rotated.
            server.on_endpoints = functools.partial(_write_ready_again, ready_file, server)
        _announce(config, server.endpoints)
        for note in server.notes:
            typer.echo(note, err=True)
        supervisor.ready(f"serving {', '.join(server.endpoints)}")
        # On a thread and after startup: creating certificates takes a moment, and nobody should wait for it.
        certificates = asyncio.get_running_loop().run_in_executor(None, _prepare_tls, server)
        await _first(stop, server.failed)
        await certificates
    finally:
        supervisor.stopping()
        await _stopped(server)
    if server.failure is not None:
        raise StoreError(f"The broker stopped because its store failed: {server.failure}")


def _prepare_tls(server: Server) -> None:
    try:
        server.certificates.load()
    except ConfigError as error:
        logging.getLogger(__name__).error("no TLS is possible: %s", error)


async def _stopped(server: Server) -> None:
    try:
        await server.stop()
    except Exception:
        # After a store failure nothing more can be saved, and the failure itself is the better message.
        if server.failure is None:
            raise
        logging.getLogger(__name__).exception("stopping after the failure")


def _on_signals(stop: asyncio.Event) -> None:
    loop = asyncio.get_running_loop()

    def told() -> None:
        stop.set()
        for each in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(each)

    for each in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(each, told)


async def _first(*events: asyncio.Event) -> None:
    waits = [asyncio.ensure_future(event.wait()) for event in events]
    try:
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()


def _write_ready(path: Path, endpoints: Mapping[str, NamespaceEndpoint]) -> None:
    namespaces = {
        name: {
            "connection_string": endpoint.connection_string,
            "host": endpoint.host,
            "port": endpoint.port,
            "admin_url": endpoint.admin_url,
        }
        for name, endpoint in endpoints.items()
    }
    try:
        write_private(path, json.dumps({"pid": os.getpid(), "namespaces": namespaces}, indent=2) + "\n")
    except OSError as error:
        raise ConfigError(f"The ready file {path} cannot be written: {error.strerror}.") from None


def _write_ready_again(path: Path, server: Server) -> None:
    try:
        _write_ready(path, server.endpoints)
    except ConfigError as error:
        # The key is already rotated, and the caller has it.
        logging.getLogger(__name__).error("%s", error)


def _announce(config: BrokerConfig, endpoints: Mapping[str, NamespaceEndpoint]) -> None:
    # A service's output ends up in a log; the well-known development key is not a secret.
    shown = config.dev or sys.stdout.isatty()
    lines = [f"Twinbus keeps its data in {config.data}."]
    if config.dev:
        lines.append("Development mode: any key and any token is accepted.")
    for name, endpoint in endpoints.items():
        classic = (endpoint.amqp_port, endpoint.amqps_port, endpoint.admin_port)
        also = "".join(f", {port}" for port in classic if port is not None)
        text = endpoint.connection_string if shown else redacted(endpoint.connection_string)
        lines += [
            "",
            f"{name} on {endpoint.host}:{endpoint.port}{also}",
            text,
            f"Console: {endpoint.admin_url}/console",
        ]
    if not shown:
        lines += ["", f"The keys are in {config.data}/{KEYS_FILE}, and with --ready-file in the ready file."]
    if config.dev and not is_loopback(config.host):
        places = ", ".join(f"{config.host}:{endpoint.port}" for endpoint in endpoints.values())
        typer.echo(
            f"Warning: every machine that reaches {places} can read, send and delete all messages and entities, "
            "because any key is accepted.",
            err=True,
        )
    # Plain text without wrapping, so that the connection strings can be copied.
    typer.echo("\n".join(lines))
