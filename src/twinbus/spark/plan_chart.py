"""The plan as a chart: the backlog over time, and how unevenly chance fills the queues."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from twinbus.errors import ConfigError
from twinbus.plan.outage import backlog_at
from twinbus.plan.plan import Plan
from twinbus.plan.wording import number, share, span
from twinbus.spark.report.drawing import drawing, quiet, save
from twinbus.spark.report.palette import light

_POINTS = 200
_TICKS = 8
_STEPS_S = (1, 5, 10, 30, 60, 120, 300, 600, 1_200, 1_800, 3_600, 7_200, 14_400, 43_200, 86_400, 432_000, 10**9)


def write_chart(plan: Plan, path: Path) -> None:
    """Write it as an .svg or .png file."""
    if find_spec("matplotlib") is None:
        raise ConfigError("A chart needs matplotlib: run `pip install 'twinbus[spark]'`.")
    from matplotlib.ticker import FuncFormatter, MultipleLocator, PercentFormatter

    load, course, spread = plan.load, plan.outage, plan.spread
    with drawing(9, 6.4) as figure:
        above, below = figure.subplots(2, 1)
        end_s = max(course.drained_s, load.outage_s, 1) * 1.02
        moments = sorted(
            {end_s * at / _POINTS for at in range(_POINTS + 1)}
            | {course.failover_s, course.failover_s - 1e-6, course.back_s, course.drained_s}
        )
        values = [backlog_at(load, course, at) for at in moments if 0 <= at <= end_s]
        moments = [at for at in moments if 0 <= at <= end_s]
        above.axvspan(0, load.outage_s, color=light("line"), alpha=0.5, linewidth=0)
        above.fill_between(moments, values, color=light("to-backlog"), alpha=0.35, linewidth=0)
        above.plot(moments, values, color=light("to-backlog"), linewidth=1.8)
        above.set_title(
            f"Backlog: {number(course.diverted)} messages diverted, empty after {span(course.drained_s)}", loc="left"
        )
        above.set_xlim(0, end_s)
        above.set_ylim(bottom=0)
        above.xaxis.set_major_locator(MultipleLocator(next(step for step in _STEPS_S if end_s / step <= _TICKS)))
        above.xaxis.set_major_formatter(FuncFormatter(lambda at, _: span(at)))
        above.yaxis.set_major_formatter(FuncFormatter(lambda count, _: number(count)))
        above.set_xlabel("from the primary's end; grey: the outage")
        shares = [where for where, _ in spread.probabilities]
        width = 0.8 / spread.writers
        below.bar(shares, [each for _, each in spread.probabilities], width=width, color=light("from-backlog"))
        below.axvline(spread.even, color=light("muted"), linewidth=1.2, linestyle="--")
        below.set_title(
            f"The fullest of {load.queues} queues: {share(spread.share)} of the backlog on average, even is "
            f"{share(spread.even)} (dashed)",
            loc="left",
        )
        # Only as far as anything is visible.
        seen = [where for where, each in spread.probabilities if each > 1e-4]
        below.set_xlim(max(0, spread.even - 2 * width), max(seen) + 2 * width)
        below.xaxis.set_major_formatter(FuncFormatter(lambda part, _: share(part)))
        below.yaxis.set_major_formatter(PercentFormatter(1, decimals=0))
        below.set_xlabel("the fullest queue's share")
        below.set_ylabel("probability")
        for axes in (above, below):
            quiet(axes)
        save(figure, path)
