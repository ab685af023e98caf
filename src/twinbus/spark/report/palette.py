"""The colours of charts and tables: one for each stage, the same everywhere, in light and in dark.

Rules:
- A chart is drawn in the light colours; in a page each of them is replaced by the name that the style sheet gives it,
  so that the page's reader decides on light or dark.
- No two colours here are the same, or the one could not be told from the other when they are replaced.
"""

from __future__ import annotations

from typing import Final

# Name -> light, dark. Text on paper has a contrast above 4.5, areas beside each other are told apart by lightness too.
COLOURS: Final[dict[str, tuple[str, str]]] = {
    "paper": ("#fefefe", "#14171c"),
    "ink": ("#1c2530", "#e6e9ee"),
    "muted": ("#5b6673", "#9aa5b3"),
    "line": ("#dde2e8", "#2d343e"),
    "direct": ("#5b7f95", "#7fa6bd"),
    "to-backlog": ("#d9822b", "#eda04f"),
    "from-backlog": ("#c14d7c", "#e07ba4"),
    "to-primary": ("#2f9e7b", "#4cc39d"),
    "ping": ("#7a5cc4", "#a48ae8"),
    "poll": ("#a8977a", "#c4b394"),
    "base": ("#8c96a3", "#707b89"),
    "connections": ("#3f72c9", "#6b9bef"),
    "bandwidth": ("#6f8f2f", "#a3c45e"),
    "other": ("#b4bcc6", "#525c69"),
}

# Stages in the order of a message's way, then what is there without one.
STAGES: Final = (
    "direct",
    "to-backlog",
    "from-backlog",
    "to-primary",
    "ping",
    "poll",
    "bandwidth",
    "connections",
    "base",
)
# Stages that are not paid for by the operation.
FIXED: Final = ("bandwidth", "connections", "base")
STAGE_WORDS: Final = {
    "direct": "direct",
    "to-backlog": "to the backlog",
    "from-backlog": "from the backlog",
    "to-primary": "to the primary",
    "ping": "pings",
    "poll": "idle polls",
    "bandwidth": "bandwidth",
    "connections": "connections",
    "base": "base charge",
}


def light(name: str) -> str:
    """The colour that a chart is drawn in; stages that are not known yet share one."""
    return COLOURS.get(name, COLOURS["other"])[0]


def style() -> str:
    """The colours as properties of a style sheet, for light, dark and paper."""
    days = "".join(f"--{name}:{pair[0]};" for name, pair in COLOURS.items())
    nights = "".join(f"--{name}:{pair[1]};" for name, pair in COLOURS.items())
    return f":root{{{days}}}\n@media screen and (prefers-color-scheme:dark){{:root{{{nights}}}}}\n"
