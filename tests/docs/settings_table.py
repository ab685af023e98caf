"""The table of settings in docs/config.md, made from `EntitySettings`.

`python -m tests.docs.settings_table` writes it into the page.
"""

from __future__ import annotations

import re

from tests.docs.pages import ROOT
from twinbus.durations import short_ms
from twinbus.entities.setting import DURATION, EVERY, FLAG, NO_EFFECT, NUMBER, Setting
from twinbus.entities.settings import SETTINGS
from twinbus.limits import UNLIMITED_MS

PAGE = ROOT / "docs" / "config.md"
HEAD = ["| setting | `config.json`, admin XML | of | default | range | what it does |", "|---|---|---|---|---|---|"]
TABLE = re.compile(r"^\| setting \|.*\n(?:\|.*\n)+", re.MULTILINE)


def default_of(setting: Setting) -> str:
    if setting.kind == DURATION:
        return short_ms(setting.default)
    if setting.kind == FLAG:
        return "true" if setting.default else "false"
    if setting.kind == NUMBER:
        return f"{setting.default:,}"
    return "none" if setting.default is None else f'"{setting.default}"'


def range_of(setting: Setting) -> str:
    later = ["cannot change later"] if setting.fixed else []
    if setting.kind == DURATION:
        most = "" if setting.highest == UNLIMITED_MS else f" to {short_ms(setting.highest)}"
        return f"{short_ms(setting.lowest)}{most or ' or more'}"
    if setting.kind == NUMBER:
        return f"{setting.lowest:,} to {setting.highest:,}"
    if setting.choices:
        return ", ".join(f'"{each}"' for each in setting.choices)
    return f"{setting.highest:,} characters" if setting.highest else ", ".join(later)


def row(setting: Setting) -> str:
    kinds = "every kind" if setting.entities == EVERY else ", ".join(setting.entities)
    does = "nothing; accepted for compatibility" if setting.help == NO_EFFECT else setting.help
    cells = [f"`{setting.key}`", f"`{setting.azure}`", kinds, default_of(setting), range_of(setting), does]
    return "| " + " | ".join(cells) + " |"


def table() -> str:
    return "\n".join([*HEAD, *map(row, SETTINGS)]) + "\n"


if __name__ == "__main__":
    PAGE.write_text(TABLE.sub(table().replace("\\", "\\\\"), PAGE.read_text()))
