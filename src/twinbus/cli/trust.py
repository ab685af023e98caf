"""`twinbus trust`: where the development CA is, and how to make each kind of client trust it.

Rules:
- The CA is created if it does not exist, so that clients can be set up before the broker's first start.
- The output can be pasted into a shell, or evaluated with `--export`; with `--json`, programs can read it.
- A variable that replaces a client's CAs names a bundle: the machine's CAs and ours, so that other hosts keep working.
"""

from __future__ import annotations

import json
from pathlib import Path
from shlex import quote
from typing import Annotated

import typer


def trust(
    data: Annotated[Path | None, typer.Option(metavar="DIR", help="Data folder of the broker.")] = None,
    config: Annotated[Path | None, typer.Option(metavar="FILE", help="Configuration file of the broker.")] = None,
    export: Annotated[
        bool, typer.Option("--export", help="Print shell commands that set the variables of Python, Node, Go and .NET.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show how to make clients trust the broker's certificate.

    \b
    Example:
      twinbus trust --data ./data
      eval "$(twinbus trust --data ./data --export)"
    """
    from twinbus.broker.configuration.file import load_config
    from twinbus.broker.configuration.toml import TomlConfig
    from twinbus.broker.security.certificates import ensure_bundle, ensure_ca
    from twinbus.cli.folders import default_data
    from twinbus.errors import ConfigError

    file = load_config(config) if config is not None else TomlConfig()
    if file.tls_certificate is not None:
        if export:
            raise ConfigError(
                f"The broker uses your own certificate, {file.tls_certificate}: trust its issuer instead."
            )
        text = f"The broker uses your own certificate, {file.tls_certificate}: clients must trust its issuer."
        typer.echo(json.dumps({"certificate": str(file.tls_certificate)}) if as_json else text)
        return
    folder = (data or file.data or default_data()).expanduser().absolute()
    if not folder.is_dir():
        raise ConfigError(f"There is no data folder {folder}. Start the broker once, or pass its folder with --data.")
    ca = ensure_ca(folder)
    if not as_json and not export:
        typer.echo(explained(ca))
        return
    variables = environment(ca, ensure_bundle(folder))
    if as_json:
        typer.echo(json.dumps({"ca": str(ca), "environment": variables}, indent=2))
    else:
        typer.echo("\n".join(f"export {name}={quote(value)}" for name, value in variables.items()))


def environment(ca: Path, bundle: Path) -> dict[str, str]:
    """Return the environment variables that make runtimes trust a CA."""
    return {"NODE_EXTRA_CA_CERTS": str(ca), "REQUESTS_CA_BUNDLE": str(bundle), "SSL_CERT_FILE": str(bundle)}


def explained(ca: Path) -> str:
    """Return the instructions for the user."""
    shown = quote(str(ca))
    return f"""The development CA is {ca}

Clients trust the broker's certificates once they know it. It is valid only for this broker's data folder.

Shell    eval "$(twinbus trust --data {quote(str(ca.parent))} --export)"
         Sets the variables of Python, Node, Go and .NET (on Linux); clients still trust the machine's CAs, too.
Python   ServiceBusClient.from_connection_string(..., connection_verify={str(ca)!r})
         The same for ServiceBusAdministrationClient.
Node     export NODE_EXTRA_CA_CERTS={shown}
.NET     On macOS and Windows, add it to the user's trusted root certificates.
Java     keytool -importcert -noprompt -alias twinbus -file {shown} -keystore twinbus.p12 -storepass changeit
         java -Djavax.net.ssl.trustStore=twinbus.p12 -Djavax.net.ssl.trustStorePassword=changeit ...
Debian   sudo cp {shown} /usr/local/share/ca-certificates/twinbus.crt && sudo update-ca-certificates"""
