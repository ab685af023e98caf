"""`twinbus trust`: where the development CA is, and how to make each kind of client trust it.

Rules:
- The CA is created if it does not exist, so that clients can be set up before the broker's first start.
- The output can be pasted into a shell; with `--json`, programs can read it.
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
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show how to make clients trust the broker's certificate.

    \b
    Example:
      twinbus trust --data ./data
      export SSL_CERT_FILE=$(twinbus trust --data ./data --json | jq -r .ca)
    """
    from twinbus.broker.configuration.file import load_config
    from twinbus.broker.configuration.toml import TomlConfig
    from twinbus.broker.security.certificates import ensure_ca
    from twinbus.cli.folders import default_data
    from twinbus.errors import ConfigError

    file = load_config(config) if config is not None else TomlConfig()
    if file.tls_certificate is not None:
        text = f"The broker uses your own certificate, {file.tls_certificate}: clients must trust its issuer."
        typer.echo(json.dumps({"certificate": str(file.tls_certificate)}) if as_json else text)
        return
    folder = (data or file.data or default_data()).expanduser().absolute()
    if not folder.is_dir():
        raise ConfigError(f"There is no data folder {folder}. Start the broker once, or pass its folder with --data.")
    ca = ensure_ca(folder)
    if as_json:
        typer.echo(json.dumps({"ca": str(ca), "environment": environment(ca)}, indent=2))
    else:
        typer.echo(explained(ca))


def environment(ca: Path) -> dict[str, str]:
    """Return the environment variables that make runtimes trust a CA."""
    return {"NODE_EXTRA_CA_CERTS": str(ca), "SSL_CERT_FILE": str(ca)}


def explained(ca: Path) -> str:
    """Return the instructions for the user."""
    shown = quote(str(ca))
    return f"""The development CA is {ca}

Clients trust the broker's certificates once they know it. It is valid only for this broker's data folder.

Python   ServiceBusClient.from_connection_string(..., connection_verify={str(ca)!r})
         The same for ServiceBusAdministrationClient.
Node     export NODE_EXTRA_CA_CERTS={shown}
Go       export SSL_CERT_FILE={shown}
         It replaces the system's CAs, also for curl and everything else that uses OpenSSL.
.NET     On Linux SSL_CERT_FILE as for Go; elsewhere add it to the user's trusted root certificates.
Java     keytool -importcert -noprompt -alias twinbus -file {shown} -keystore twinbus.p12 -storepass changeit
         java -Djavax.net.ssl.trustStore=twinbus.p12 -Djavax.net.ssl.trustStorePassword=changeit ...
Debian   sudo cp {shown} /usr/local/share/ca-certificates/twinbus.crt && sudo update-ca-certificates"""
