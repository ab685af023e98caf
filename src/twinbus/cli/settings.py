"""Entity settings as command-line options, generated from the table of settings, and their display.

Rules:
- A setting that is not given is left to the service; if the service refuses a value, its error is shown unchanged.
- An update reads the current settings and changes only the given ones. An empty string clears a setting.
- Durations are written PT30S, P14D, or 30s, 5m, 14d; `never` is the longest.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

import typer

from twinbus.cli.view import time_text
from twinbus.durations import format_ms, parse_ms, short_ms
from twinbus.entities.setting import DURATION, FLAG, NUMBER, Setting
from twinbus.entities.settings import SETTINGS, SETTINGS_OF, STATUSES
from twinbus.errors import ConfigError
from twinbus.limits import UNLIMITED_MS

_TIMES = ("created_ms", "updated_ms", "accessed_ms")
_KEPT = {"path", "topic", "name"} | {setting.name for setting in SETTINGS}

Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]


def options(kind: str, *, new: bool) -> dict[str, Any]:
    """Return the options for a kind of entity, by parameter; those for an existing entity omit fixed settings."""
    return {setting.key: _option(setting) for setting in SETTINGS_OF[kind] if new or not setting.fixed}


def _option(setting: Setting) -> Any:
    name = f"--{setting.key.replace('_', '-')}"
    choices = f" One of {', '.join(setting.choices)}." if setting.choices else ""
    text = f"{setting.help}{choices}{_default(setting)}"
    if setting.kind == FLAG:
        off = f"--{setting.off}" if setting.off else name.replace("--", "--no-")
        return Annotated[bool | None, typer.Option(f"{name}/{off}", help=text)]
    kind = int if setting.kind == NUMBER else str
    completion = _starting(setting.choices) if setting.choices else None
    return Annotated[kind | None, typer.Option(name, metavar=setting.metavar, help=text, autocompletion=completion)]


def _default(setting: Setting) -> str:
    if setting.default is None:
        return ""
    if setting.kind == DURATION:
        return f" [{short_ms(setting.default)}]"
    if setting.kind == FLAG:
        return f" [{'yes' if setting.default else 'no'}]"
    return f" [{setting.default}]"


def _starting(choices: tuple[str, ...]) -> Callable[[str], list[str]]:
    """Return a shell completion of these choices."""
    return lambda incomplete: [each for each in choices if each.lower().startswith(incomplete.lower())]


NewStatus = Annotated[
    str | None,
    typer.Argument(metavar="STATUS", help="The new status.", autocompletion=_starting(STATUSES), show_default=False),
]


def given(values: dict[str, Any]) -> dict[str, Any]:
    """Return the given settings under their own names."""
    found = {}
    for setting in SETTINGS:
        value = values.get(setting.key)
        if value is None:
            continue
        if setting.choices:
            value = _choice(setting, value)
        found[setting.name] = parse_ms(value) if setting.kind == DURATION else value
    return found


def _choice(setting: Setting, text: str) -> str:
    """Return a value in the service's spelling, whatever its case."""
    for each in setting.choices:
        if each.lower() == text.lower():
            return each
    raise ConfigError(f"{setting.name} {text!r} is not one of {', '.join(setting.choices)}.")


def changed(before: dict[str, Any], values: dict[str, Any]) -> dict[str, Any]:
    """Return the current settings overridden by the given ones; an empty string clears a setting."""
    settings = {name: value for name, value in before.items() if name in _KEPT}
    settings |= {name: None if value == "" else value for name, value in given(values).items()}
    return {name: value for name, value in settings.items() if value is not None}


def rows(described: dict[str, Any]) -> list[list[str]]:
    """Return a description as table rows."""
    return [_row(field, value) for field, value in described.items()]


def _row(field: str, value: Any) -> list[str]:
    if field in _TIMES:
        return [field.removesuffix("_ms"), time_text(value)]
    name = field.removesuffix("_ms").replace("_", "-")
    if value is None:
        return [name, "-"]
    if field.endswith("_ms"):
        return [name, "never" if value >= UNLIMITED_MS else format_ms(value)]
    if isinstance(value, bool):
        return [name, "yes" if value else "no"]
    return [name, f"{value:,}" if isinstance(value, int) else str(value)]


def number(value: int | None) -> str:
    return "-" if value is None else f"{value:,}"
