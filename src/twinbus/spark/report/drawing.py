"""Draws charts with matplotlib, without its global state, as SVG for a page or as a file.

- The same numbers give the same bytes: no date, no random ids.
- A name is plain text: no math between dollar signs, no markup.
- In a page every chart has its own ids, the page's colours and fonts, a title and a description.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from html import escape
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

from twinbus.errors import ConfigError
from twinbus.limits import REPORT_NAME_CHARS
from twinbus.spark.report.palette import COLOURS, light

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_SETTINGS: Final[dict[str, Any]] = {
    "svg.hashsalt": "twinbus",
    "svg.fonttype": "none",
    "text.parse_math": False,
    "axes.unicode_minus": False,
    "font.family": "DejaVu Sans",
    "font.size": 10,
    "text.color": light("ink"),
    "axes.labelcolor": light("muted"),
    "axes.edgecolor": light("line"),
    "axes.facecolor": "none",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "grid.color": light("line"),
    "grid.linewidth": 0.8,
    "xtick.color": light("line"),
    "ytick.color": light("line"),
    "xtick.labelcolor": light("muted"),
    "ytick.labelcolor": light("muted"),
    "xtick.labelsize": 9,
    "ytick.labelsize": 9,
    "legend.frameon": False,
    "legend.fontsize": 9,
    "figure.facecolor": "none",
    "savefig.facecolor": "none",
}
_METADATA: Final = {"Date": None, "Creator": None, "Format": None, "Type": None}
_IDS: Final = re.compile(r'(\bid="|url\(#|xlink:href="#)')
_HEAD: Final = re.compile(r"^.*?<svg\b[^>]*?viewBox=\"([^\"]+)\"[^>]*>", re.DOTALL)
_FONTS: Final = re.compile(r"font-family: [^;\"]*")
_STYLE: Final = re.compile(r"\s*<defs>\s*<style\b[^>]*>[^<]*</style>\s*</defs>")
# Only tags are changed; text between them belongs to users.
_TAG: Final = re.compile(r"<[^>]+>")
_NAMES: Final = {pair[0]: name for name, pair in COLOURS.items()}
_HEX: Final = re.compile("|".join(map(re.escape, _NAMES)))
_CONTROL: Final = re.compile(
    r"[\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ufffe\uffff\ud800-\udfff]"
)


@contextmanager
def drawing(width: float, height: float) -> Iterator[Any]:
    """A figure of this size in inches, with our settings while it is drawn and written."""
    import warnings

    import matplotlib as mpl
    from matplotlib.figure import Figure

    with mpl.rc_context(cast(Any, _SETTINGS)), warnings.catch_warnings():
        # A name may contain characters that the measuring font lacks; the reader's font has them.
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        # Names wider than the chart are cut off at its edge; better than no chart.
        warnings.filterwarnings("ignore", message="constrained_layout not applied")
        yield Figure(figsize=(width, height), layout="constrained")


def shown(name: str, chars_max: int = REPORT_NAME_CHARS) -> str:
    """A name for charts and tables: invisible characters are made visible, and a long name is shortened in the
    middle."""
    visible = _visible(name)
    if len(visible) <= chars_max:
        return visible or "(none)"
    tail = chars_max // 3
    return f"{visible[: chars_max - tail - 1]}…{visible[-tail:]}"


def svg(figure: Figure, key: str, title: str, description: str) -> str:
    """The chart for a page. `key` makes its ids unique within the page."""
    out = StringIO()
    figure.savefig(out, format="svg", metadata=_METADATA)
    text = out.getvalue()
    found = _HEAD.match(text)
    if found is None:
        raise AssertionError("matplotlib writes a view box")
    body = text[found.end() :].rstrip().removesuffix("</svg>")
    body = _TAG.sub(lambda match: _ours(match[0], key), _STYLE.sub("", body, count=1))
    _, _, width, height = found[1].split()
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" role="img" '
        f'viewBox="{found[1]}" width="{width}" height="{height}" aria-labelledby="{key}-title {key}-desc">'
        f'<title id="{key}-title">{escape(_visible(title))}</title>'
        f'<desc id="{key}-desc">{escape(_visible(description))}</desc>{body}</svg>'
    )


def _ours(tag: str, key: str) -> str:
    """A tag with the chart's own ids and the page's colours and fonts."""
    tag = _IDS.sub(lambda match: f"{match[1]}{key}-", tag)
    tag = _HEX.sub(lambda match: f"var(--{_NAMES[match[0]]})", tag)
    return _FONTS.sub("font-family: var(--sans)", tag)


def _visible(text: str) -> str:
    return _CONTROL.sub("\N{REPLACEMENT CHARACTER}", text)


def save(figure: Figure, path: Path) -> None:
    """Write the chart to a file, on a white background."""
    kind = path.suffix.lower().removeprefix(".")
    if kind not in ("svg", "png"):
        raise ConfigError(f"A chart is an .svg or a .png file, not {path.name!r}.")
    metadata = _METADATA if kind == "svg" else {"Software": None}
    figure.savefig(path, format=kind, metadata=metadata, facecolor="white", dpi=144)


def quiet(axes: Axes) -> None:
    """Remove everything from an axis except its labels."""
    axes.tick_params(length=0)
    axes.tick_params(axis="x", pad=6)
    axes.spines["left"].set_visible(False)
