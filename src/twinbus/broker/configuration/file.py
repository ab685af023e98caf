"""Loads a configuration file: the emulator's `config.json`, or our TOML.

- The file extension decides: `.toml` is ours, anything else is the emulator's JSON.
- JSON may contain `//` and `/* */` comments and trailing commas. They are blanked rather than removed, so that errors
  name the right line and column.
"""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

from twinbus.broker.configuration.config import emulator_ports
from twinbus.broker.configuration.emulator import read_emulator
from twinbus.broker.configuration.toml import TomlConfig, read_toml
from twinbus.errors import ConfigError
from twinbus.limits import CONFIG_FILE_BYTES_MAX


def load_config(path: Path) -> TomlConfig:
    """Read and check a configuration file."""
    try:
        if path.stat().st_size > CONFIG_FILE_BYTES_MAX:
            raise ConfigError(f"{path} is larger than {CONFIG_FILE_BYTES_MAX} bytes.")
        # Editors on Windows write a byte order mark.
        text = path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}.") from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is not UTF-8 text (byte {error.start}).") from None
    return parse_config(text, path)


def parse_config(text: str, path: Path) -> TomlConfig:
    """Check the text of a configuration file."""
    if path.suffix.lower() == ".toml":
        try:
            document: object = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise ConfigError(f"{path.name} is not TOML: {error}.") from None
        except RecursionError:
            raise ConfigError(f"{path.name} is nested too deep.") from None
        except ValueError:
            raise ConfigError(f"{path.name} has a number that is too long.") from None
        return read_toml(document, path.name, path.parent)
    namespaces = read_emulator(parse_json(text, path.name), path.name)
    if len(namespaces) == 1:
        namespaces = [emulator_ports(namespaces[0])]
    return TomlConfig(namespaces=namespaces)


def parse_json(text: str, file: str) -> object:
    """Parse JSON with comments and trailing commas; a duplicate key is an error."""
    try:
        return json.loads(blank_comments(text, file), object_pairs_hook=_unique)
    except json.JSONDecodeError as error:
        raise ConfigError(f"{file} is not JSON: {error.msg} at line {error.lineno}, column {error.colno}.") from None
    except RecursionError:
        raise ConfigError(f"{file} is nested too deep.") from None
    except _TwiceError as error:
        raise ConfigError(f"{file} has the key {error.args[0]!r} twice in one table.") from None
    except ValueError:
        raise ConfigError(f"{file} has a number that is too long.") from None


def blank_comments(text: str, file: str = "text") -> str:
    """Replace comments and trailing commas by spaces."""
    out = list(text)
    at, end = 0, len(text)
    comma = -1  # the last comma with nothing but space and comments after it
    while at < end:
        char = text[at]
        if char == '"':
            at = _after_string(text, at)
            comma = -1
            continue
        if text.startswith("//", at) or text.startswith("/*", at):
            stop = _after_comment(text, at, file)
            for n in range(at, stop):
                if text[n] != "\n":
                    out[n] = " "
            at = stop
            continue
        if char == ",":
            comma = at
        elif char in "]}":
            if comma >= 0:
                out[comma] = " "
            comma = -1
        elif not char.isspace():
            comma = -1
        at += 1
    return "".join(out)


def _after_comment(text: str, at: int, file: str) -> int:
    if text[at + 1] == "/":
        stop = text.find("\n", at)
        return len(text) if stop < 0 else stop
    stop = text.find("*/", at + 2)
    if stop < 0:
        line = text.count("\n", 0, at) + 1
        raise ConfigError(f"{file} has a comment that never ends, from line {line}.")
    return stop + 2


class _TwiceError(Exception):
    """An object has the same key twice."""


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise _TwiceError(name)
        found[name] = value
    return found


def _after_string(text: str, at: int) -> int:
    at += 1
    while at < len(text) and text[at] != '"':
        at += 2 if text[at] == "\\" else 1
    return at + 1
