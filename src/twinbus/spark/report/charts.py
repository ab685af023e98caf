"""The charts of a report. Each takes the facts and returns an SVG, or None if there is nothing to draw.

A chart has a fixed size. On a narrow screen the page scrolls it sideways, because smaller labels would be unreadable.
"""

from __future__ import annotations

import math
from importlib import import_module
from typing import Any

from twinbus.ledger.records import LATENCY_BOUNDS_MS
from twinbus.limits import REPORT_ENTITIES
from twinbus.plan.wording import plural, span
from twinbus.spark.report.drawing import drawing, quiet, shown, svg
from twinbus.spark.report.facts import CostReport, Episode
from twinbus.spark.report.listing import ordered, word
from twinbus.spark.report.palette import FIXED, light
from twinbus.spark.report.percentiles import bound_ms, percentile_ms, used
from twinbus.spark.report.period import Period, moment, range_text

_WIDTH = 10.0
_ROW = 0.34
_NAME_CHARS = 44
_LABELS = 9
_QUIET = ("ping", "poll")
_STEPS_S = (0.1, 0.5, 1, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1_800, 3_600, 7_200, 14_400, 43_200, 86_400, 604_800)


def _counts(axis: Any) -> None:
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    axis.set_major_locator(MaxNLocator(5, integer=True))
    axis.set_major_formatter(FuncFormatter(lambda value, _: _short(value, axis.get_view_interval()[1])))


def _short(value: float, top: float) -> str:
    """A count on an axis up to `top`: `1,200`, `45k`, `1.2M`, with one unit for the whole axis."""
    for limit, factor, unit in ((1e9, 1e9, "G"), (1e6, 1e6, "M"), (1e4, 1e3, "k")):
        if top >= limit:
            return f"{value / factor:,.1f}".removesuffix(".0") + unit if value else "0"
    return f"{value:,.0f}"


def _times(axes: Any, period: Period) -> None:
    axes.set_xlim(moment(period.start_s), moment(period.end_s))
    _dates(axes)


def _legend(axes: Any, *, right: bool = False) -> None:
    """The legend, above the chart, where nothing is drawn."""
    marks: dict[str, Any] = {"borderaxespad": 0.2, "handlelength": 1.1, "handleheight": 0.9, "columnspacing": 1.4}
    place = (
        {"loc": "lower right", "bbox_to_anchor": (1, 1)} if right else {"loc": "lower left", "bbox_to_anchor": (0, 1)}
    )
    axes.legend(ncols=6, **place, **marks)


def stages(report: CostReport) -> str | None:
    """Billed units by stage: one bar each, or a stacked bar per day if there are several days."""
    names = [name for name in ordered(list(report.stages)) if name not in FIXED and report.stages[name].units]
    if not names:
        return None
    several = len(report.days) > 1
    with drawing(_WIDTH, 3.2 if several else 0.7 + _ROW * 1.25 * len(names)) as figure:
        axes = figure.subplots()
        if several:
            starts = [moment(each.start_s) for each in report.days]
            below = [0] * len(starts)
            for name in names:
                units = [each.stages.get(name, 0) for each in report.days]
                axes.bar(
                    starts,
                    units,
                    bottom=below,
                    width=0.8 * report.days_width,
                    align="edge",
                    color=light(name),
                    label=word(name),
                )
                below = [a + b for a, b in zip(below, units, strict=True)]
            axes.set_ylim(0, max(below) * 1.05)
            _dates(axes)
            _counts(axes.yaxis)
            _legend(axes)
        else:
            _bars(axes, [(word(name), {name: report.stages[name].units}) for name in names])
        quiet(axes)
        return svg(
            figure,
            "stages",
            "Billed units by stage",
            "; ".join(f"{word(name)}: {report.stages[name].units:,} units" for name in names),
        )


def _dates(axes: Any) -> None:
    # matplotlib's modules are untyped.
    dates: Any = import_module("matplotlib.dates")
    ticker: Any = import_module("matplotlib.ticker")
    first, last = axes.get_xlim()
    length_s = (last - first) * 86_400
    step = next((each for each in _STEPS_S if 1 <= each <= 43_200 and length_s / each < _LABELS), None)
    if step is None:
        locator = dates.AutoDateLocator(minticks=2, maxticks=_LABELS)
    else:
        locator = ticker.MultipleLocator(step / 86_400)
    axes.xaxis.set_major_locator(locator)
    by_second = step is not None and step < 60
    formatter = dates.DateFormatter("%H:%M:%S") if by_second else dates.ConciseDateFormatter(locator)
    axes.xaxis.set_major_formatter(formatter)
    axes.xaxis.get_offset_text().set(color=light("muted"), fontsize=9)


def _bars(axes: Any, rows: list[tuple[str, dict[str, int]]]) -> None:
    """Horizontal bars, stacked by stage, with their sums at the end."""
    tops = []
    for at, (_, parts) in enumerate(rows):
        left = 0
        for name in ordered(list(parts)):
            axes.barh(at, parts[name], left=left, height=0.62, color=light(name))
            left += parts[name]
        tops.append(left)
    most = max(tops, default=0)
    for at, top in enumerate(tops):
        axes.text(top + most * 0.012, at, f"{top:,}", va="center", fontsize=9, color=light("muted"))
    axes.set_yticks(range(len(rows)), [name for name, _ in rows], color=light("ink"))
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.set_xlim(0, max(most, 1) * 1.14)
    axes.grid(visible=True, axis="x")
    axes.grid(visible=False, axis="y")
    _counts(axes.xaxis)


def entities(report: CostReport) -> str | None:
    """Billed units by entity, stacked by stage."""
    rows = [(shown(each.entity, _NAME_CHARS), dict(each.stages)) for each in report.entities]
    if not rows:
        return None
    if report.others is not None:
        left = report.entities_count - len(report.entities)
        rows.append((plural(left, "other", "others"), dict(report.others.stages)))
    names = ordered(list({name for _, parts in rows for name in parts}))
    with drawing(_WIDTH, 1.0 + _ROW * len(rows)) as figure:
        axes = figure.subplots()
        _bars(axes, rows)
        for name in names:
            axes.bar(0, 0, color=light(name), label=word(name))
        _legend(axes)
        quiet(axes)
        return svg(
            figure,
            "entities",
            "Billed units by entity",
            "; ".join(f"{name}: {sum(parts.values()):,} units" for name, parts in rows),
        )


def failovers(report: CostReport) -> str | None:
    """When each entity was failed over: a time axis with a row per entity."""
    if not report.episodes or report.period is None:
        return None
    rows: dict[tuple[str, str], list[Episode]] = {}
    for each in report.episodes:
        rows.setdefault((each.namespace, each.entity), []).append(each)
    kept = sorted(rows, key=lambda key: (-sum(each.diverted for each in rows[key]), key))[:REPORT_ENTITIES]
    keys = sorted(kept, key=lambda key: (rows[key][0].started_s, key))
    several = len({namespace for namespace, _ in keys}) > 1
    # Zoom in on the failovers: next to a long quiet time they would be too thin to see.
    period = _around(report)
    with drawing(_WIDTH, 0.8 + _ROW * len(keys)) as figure:
        axes = figure.subplots()
        for at, key in enumerate(keys):
            for each in rows[key]:
                start_s, end_s = period.clipped(each.started_s, each.ended_s)
                # Keep very short ones visible.
                width_s = max(end_s - start_s, period.length_s / 400)
                axes.barh(
                    at,
                    width_s / 86_400,
                    left=moment(start_s),
                    height=0.6,
                    color=light("to-backlog"),
                    alpha=1 if each.ended_s is not None else 0.6,
                    hatch=None if each.ended_s is not None else "///",
                    edgecolor=light("paper"),
                    linewidth=0,
                )
        labels = [shown(f"{namespace}: {entity}" if several else entity, _NAME_CHARS) for namespace, entity in keys]
        axes.set_yticks(range(len(keys)), labels, color=light("ink"))
        axes.set_ylim(len(keys) - 0.4, -0.6)
        axes.grid(visible=True, axis="x")
        axes.grid(visible=False, axis="y")
        _times(axes, period)
        quiet(axes)
        told = [
            f"{shown(each.entity)} from {range_text(*period.clipped(each.started_s, each.ended_s))}"
            for each in report.episodes[:REPORT_ENTITIES]
        ]
        return svg(figure, "failovers", "Failovers over time", "; ".join(told))


def _around(report: CostReport) -> Period:
    """The time of the failovers with a margin, within the report's period."""
    period = report.period
    if period is None:
        raise AssertionError("failovers have a time")
    starts = [period.clipped(each.started_s, each.ended_s)[0] for each in report.episodes]
    ends = [period.clipped(each.started_s, each.ended_s)[1] for each in report.episodes]
    margin = max((max(ends) - min(starts)) * 0.15, period.unit_s)
    start_s, end_s = period.clipped(min(starts) - margin, max(ends) + margin)
    return Period.fine(int(start_s), math.ceil(end_s)) or Period.between(int(start_s), int(end_s))


def backlog(report: CostReport) -> str | None:
    """Messages in the backlog, and the age of the oldest, over time."""
    found, period = report.backlog, report.period
    if found is None or period is None:
        return None
    from matplotlib.ticker import FuncFormatter, MultipleLocator

    # The last piece needs an end, too: it may be the only one.
    at = [moment(each) for each in (*period.pieces, period.pieces[-1] + period.width_s)]
    nan = float("nan")
    depth, fullest = (
        [nan if each is None else each for each in (*values, values[-1])] for values in (found.depth, found.fullest)
    )
    oldest = [nan if each is None else each / 1000 for each in (*found.oldest_ms, found.oldest_ms[-1])]
    with drawing(_WIDTH, 4.2) as figure:
        above, below = figure.subplots(2, 1, sharex=True, height_ratios=(3, 2))
        above.fill_between(at, depth, color=light("to-backlog"), alpha=0.3, linewidth=0, step="post")
        above.step(at, depth, where="post", color=light("to-backlog"), linewidth=1.8, label="all queues")
        above.step(at, fullest, where="post", color=light("from-backlog"), linewidth=1.4, label="the fullest queue")
        above.set_title("messages in the backlog", loc="left", fontsize=9, color=light("muted"))
        _legend(above, right=True)
        _counts(above.yaxis)
        below.step(at, oldest, where="post", color=light("ping"), linewidth=1.6)
        below.set_title("age of the oldest", loc="left", fontsize=9, color=light("muted"))
        below.yaxis.set_major_locator(
            MultipleLocator(_step_s(max((each for each in oldest if each == each), default=0)))
        )
        below.yaxis.set_major_formatter(FuncFormatter(lambda value, _: span(value)))
        for axes in (above, below):
            axes.set_ylim(bottom=0)
            _times(axes, period)
            quiet(axes)
        most = max((each for each in found.depth if each is not None), default=0)
        longest = max((each for each in found.oldest_ms if each is not None), default=0)
        return svg(
            figure,
            "backlog",
            "Backlog over time",
            f"At most {plural(most, 'message')} in the backlog; the oldest was {span(longest / 1000)} old.",
        )


def _step_s(most_s: float) -> float:
    """A readable step for a time axis, with few ticks."""
    return next((step for step in _STEPS_S if most_s / step <= 4), most_s / 4)


def operations(report: CostReport) -> str | None:
    """Operations per minute or second by stage; pings and idle polls separately, because they are few."""
    found, period = report.operations, report.period
    if found is None or period is None or not found.stages:
        return None
    at = [moment(each) for each in (*period.pieces, period.pieces[-1] + period.width_s)]
    units = period.width_s / period.unit_s
    panels = [[name for name in ordered(list(found.stages)) if (name in _QUIET) is small] for small in (False, True)]
    titles = (f"operations a {period.unit}", f"pings and idle polls a {period.unit}")
    shown_panels = [(title, names) for title, names in zip(titles, panels, strict=True) if names]
    with drawing(_WIDTH, 2.2 + 1.7 * (len(shown_panels) - 1)) as figure:
        grid = figure.subplots(len(shown_panels), 1, sharex=True, squeeze=False)
        for axes, (title, names) in zip(grid[:, 0], shown_panels, strict=True):
            base = [0.0] * len(at)
            for name in names:
                rates = [count / units for count in found.stages[name]]
                top = [a + b for a, b in zip(base, [*rates, rates[-1]], strict=True)]
                axes.fill_between(at, base, top, step="post", color=light(name), linewidth=0, label=word(name))
                base = top
            axes.set_title(title, loc="left", fontsize=9, color=light("muted"))
            axes.set_ylim(0, max(max(base) * 1.05, 1e-9))
            _legend(axes, right=True)
            if max(base) >= 4:
                _counts(axes.yaxis)
            _times(axes, period)
            quiet(axes)
        return svg(
            figure,
            "operations",
            f"Operations a {period.unit}",
            "; ".join(f"{word(name)}: {sum(found.stages[name]):,}" for name in ordered(list(found.stages))),
        )


def latency(report: CostReport) -> str | None:
    """A histogram of the times through the backlog."""
    found = report.latency
    if found is None:
        return None
    bars = used(found.buckets)
    if not bars:
        return None
    # Pad with empty bars: a few alone would be very wide.
    bars = range(max(min(bars[0], bars[-1] - 7), 0), bars[-1] + 1)
    with drawing(_WIDTH, 2.8) as figure:
        axes = figure.subplots()
        axes.bar(range(len(bars)), [found.buckets[at] for at in bars], width=0.86, color=light("from-backlog"))
        labels = [_rough(bound_ms(at)) for at in bars]
        step = -(-len(labels) // (_LABELS + 1))
        axes.set_xticks(range(0, len(labels), step), labels[::step])
        marks: list[tuple[float, str]] = []
        for part, name in ((0.5, "half"), (0.95, "95 %"), (0.99, "99 %")):
            place = _place(percentile_ms(found.buckets, found.max_ms, part)) - bars[0]
            if marks and place - marks[-1][0] < len(bars) * 0.05:
                marks[-1] = (marks[-1][0], f"{marks[-1][1]}, {name}")
            else:
                marks.append((place, name))
            axes.axvline(place, color=light("muted"), linewidth=1, linestyle="--")
        for place, name in marks:
            axes.text(
                place, 1.01, name, transform=axes.get_xaxis_transform(), ha="center", fontsize=8, color=light("muted")
            )
        axes.set_xlim(-0.6, len(bars) - 0.4)
        _counts(axes.yaxis)
        quiet(axes)
        return svg(
            figure,
            "latency",
            "Messages by their time through the backlog",
            "; ".join(
                f"{part * 100:g} % within {span(percentile_ms(found.buckets, found.max_ms, part) / 1000)}"
                for part in (0.5, 0.95, 0.99)
            ),
        )


def _rough(time_ms: int | None) -> str:
    """The upper bound of a bucket, rounded: `≤ 17 min`, not 17 min 29 s."""
    if time_ms is None:
        return "more"
    for unit_ms, unit in ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1_000, "s")):
        if time_ms >= unit_ms:
            return f"≤ {round(time_ms / unit_ms)} {unit}"
    return f"≤ {time_ms} ms"


def _place(time_ms: float) -> float:
    """The position of a time on an axis whose bars are buckets: bar n covers n - 0.5 to n + 0.5."""
    low = 0.0
    for at, high in enumerate(LATENCY_BOUNDS_MS):
        if time_ms <= high:
            return float(at - 0.5 + (time_ms - low) / (high - low))
        low = float(high)
    return float(len(LATENCY_BOUNDS_MS))
