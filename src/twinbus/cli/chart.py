"""Small text charts for the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

_EIGHTHS: Final = " ▁▂▃▄▅▆▇█"
_BAR_EIGHTHS: Final = " ▏▎▍▌▋▊▉█"


def area(values: Sequence[float], height: int = 6) -> list[str]:
    """Draw an area chart, one column per value, scaled to the highest value."""
    top = max(values, default=0)
    if top <= 0:
        return [" " * len(values)] * (height - 1) + ["▁" * len(values)]
    # A value above zero is always visible.
    levels = [max(round(value / top * height * 8), 1 if value > 0 else 0) for value in values]
    return ["".join(_EIGHTHS[min(max(level - row * 8, 0), 8)] for level in levels) for row in reversed(range(height))]


def bar(value: float, top: float, width: int = 30) -> str:
    """Draw a bar whose length is the value's share of `top`."""
    eighths = 0 if top <= 0 else max(round(min(value / top, 1) * width * 8), 1 if value > 0 else 0)
    full, rest = divmod(eighths, 8)
    return "█" * full + (_BAR_EIGHTHS[rest] if rest else "")
