"""The colours of charts and tables: one per stage, the same everywhere, in light and dark.

- Charts are drawn in the light colours. In a page each one is replaced by a variable of the style sheet, so that the
  reader's setting decides between light and dark.
- All colours are different, or one could not be told from another when they are replaced.
"""

from __future__ import annotations

from typing import Final

# Name: (light, dark). Text has a contrast above 4.5; adjacent areas also differ in lightness.
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

# Stages in the order of a message's path, then those without one.
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
# Stages that are not billed by operation.
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
    """The colour in which a chart is drawn; unknown stages share one."""
    return COLOURS.get(name, COLOURS["other"])[0]


def style() -> str:
    """The colours as CSS variables for light, dark and print."""
    days = "".join(f"--{name}:{pair[0]};" for name, pair in COLOURS.items())
    nights = "".join(f"--{name}:{pair[1]};" for name, pair in COLOURS.items())
    return f":root{{{days}}}\n@media screen and (prefers-color-scheme:dark){{:root{{{nights}}}}}\n"
