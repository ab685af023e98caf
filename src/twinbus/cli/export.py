"""`twinbus export`: write a running namespace's entities as a configuration file, the emulator's or ours.

`twinbus serve --config FILE` recreates them. Keys are included only with `--show-keys`. What a format cannot express is
reported on standard error.
"""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from twinbus.cli.directory import in_conversation
from twinbus.cli.target import TargetNamespace, connected
from twinbus.cli.view import one_line
from twinbus.errors import ConfigError

if TYPE_CHECKING:
    from twinbus.broker.configuration.export_tree import ExportedNamespace
    from twinbus.client.management import Management


class Format(StrEnum):
    EMULATOR = "emulator"
    TOML = "toml"


@connected
def export(
    target: TargetNamespace,
    format: Annotated[
        Format | None,
        typer.Option("--format", "-f", help="Format: emulator (config.json) or toml [by the name of FILE, else toml]."),
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="File to write [standard output].")
    ] = None,
    show_keys: Annotated[
        bool, typer.Option("--show-keys", help="Include the keys of policies (TOML only); keep the file safe.")
    ] = False,
) -> None:
    """Write a namespace's entities as a configuration file. `twinbus serve --config` recreates them.

    \b
    Example:
      twinbus export --output namespace.toml
      twinbus export --format emulator > config.json
    """
    from twinbus.broker.configuration.export_emulator import write_emulator
    from twinbus.broker.configuration.export_toml import write_toml
    from twinbus.broker.security.keys import write_private

    chosen = format or (Format.EMULATOR if output is not None and output.suffix.lower() == ".json" else Format.TOML)
    if show_keys and chosen is Format.EMULATOR:
        raise ConfigError("The emulator's config.json cannot hold keys: use --show-keys with --format toml.")
    found = exported(target, show_keys=show_keys)
    text = write_emulator(found) if chosen is Format.EMULATOR else write_toml(found)
    for warning in found.warnings:
        typer.echo(one_line(f"twinbus: warning: {warning}"), err=True)
    if output is None:
        typer.echo(text, nl=False)
        return
    try:
        write_private(output, text, mode=0o600 if show_keys else 0o644)
    except OSError as error:
        raise ConfigError(f"{output} cannot be written: {error.strerror}.") from None


def exported(target: TargetNamespace, *, show_keys: bool = False) -> ExportedNamespace:
    """Fetch everything the namespace has, page by page."""
    from twinbus.broker.configuration.export_tree import tree_of

    if target.azure:
        raise ConfigError("Azure namespaces cannot be exported: this command needs a Twinbus namespace.")

    async def asked(node: Management) -> ExportedNamespace:
        items: list[dict[str, Any]] = []
        while True:
            page = await node.ask("twinbus:export", {"skip": len(items)})
            items += page["items"]
            if not page["more"]:
                break
        if show_keys:
            policies = (await node.ask("twinbus:list-policies", {"show_keys": True}))["policies"]
            keys = {(each["entity"], each["name"]): each for each in policies}
            for item in items:
                if item["kind"] == "policy":
                    item |= keys.get((item["entity"].lower(), item["name"]), {}) | {"entity": item["entity"]}
        return tree_of(page["namespace"], items)

    return in_conversation(target.broker, asked, ca_file=target.ca_file)
