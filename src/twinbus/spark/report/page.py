"""The report as one HTML page, without scripts or external resources.

- All text goes through `escape`; only known stages get a class.
- The page's policy allows inline styles and nothing else: no script, no network.
- The same facts and the same "written at" give the same bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from html import escape
from importlib.resources import files
from typing import Final

from twinbus import __version__
from twinbus.plan.wording import amount, plural, span
from twinbus.spark.report import charts, listing, palette
from twinbus.spark.report.drawing import shown
from twinbus.spark.report.facts import CostReport
from twinbus.spark.report.listing import Listing
from twinbus.spark.report.period import clock_text, range_text
from twinbus.spark.report.sentence import headline, outage_bill

_POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"


@dataclass(frozen=True, slots=True)
class ReportSection:
    """A heading, an introduction, a chart, and its tables."""

    title: str
    lead: str
    chart: Callable[[CostReport], str | None]
    tables: tuple[Callable[[CostReport], Listing], ...]
    caption: str


_SECTIONS: Final = (
    ReportSection(
        "Outages",
        "Each outage: entities that were failed over at the same time, and the billed operations it caused.",
        charts.failovers,
        (listing.outages, listing.failovers),
        "When each entity was failed over, in UTC.",
    ),
    ReportSection(
        "Backlog",
        "Messages that were diverted and not yet syphoned.",
        charts.backlog,
        (listing.queues,),
        "All backlog queues together and the fullest of them; the age of the oldest message. In UTC.",
    ),
    ReportSection(
        "Time through the backlog",
        "From the diverted send to the primary's acceptance.",
        charts.latency,
        (listing.latency,),
        "Messages by their time through the backlog. Each bar covers twice the time of the one before.",
    ),
    ReportSection(
        "Operations over time",
        "Operations of the namespaces, with the pings and idle polls that pairing adds.",
        charts.operations,
        (listing.operations,),
        "By stage, in UTC.",
    ),
    ReportSection(
        "Cost by stage",
        listing.FOUR_OPERATIONS,
        charts.stages,
        (listing.stages,),
        "Billed units by stage.",
    ),
    ReportSection(
        "Cost by entity",
        "The entities with the most billed units.",
        charts.entities,
        (listing.entities,),
        "Billed units by entity and stage.",
    ),
)


def page(report: CostReport, written_at_s: float | None = None) -> str:
    """The whole page."""
    title = "What the bus did" if not report.outages_count else "What the outage cost"
    if report.outages_count > 1:
        title = "What the outages cost"
    style = palette.style() + files(__package__).joinpath("page.css").read_text(encoding="utf-8")
    calm = "" if report.outages_count else " calm"
    parts = [
        "<!doctype html>",
        '<html lang="en">',
        "<head>",
        '<meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{escape(_POLICY)}">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        '<meta name="color-scheme" content="light dark">',
        f"<title>{escape(_browser_title(report))}</title>",
        f"<style>\n{style}</style>",
        "</head>",
        "<body>",
        "<main>",
        f'<header>\n<p class="brand">Twinbus report</p>\n<h1>{escape(title)}</h1>',
        f'<p class="scope">{_scope(report)}</p>\n</header>',
        f'<p class="headline{calm}">{escape(headline(report))}</p>',
    ]
    if report.quarantined:
        parts.append(
            f'<p class="notice">{escape(plural(report.quarantined, "line"))} of the ledger could not be read and '
            "are in the quarantine table: what they tell is missing here.</p>"
        )
    if report.period is not None:
        parts.append(_numbers(report))
        parts += [_section(section, report) for section in _SECTIONS]
    written = "" if written_at_s is None else f" Written {escape(clock_text(written_at_s))} UTC."
    parts += [
        f"<footer>Twinbus {escape(__version__)}.{written} Prices by the sheet {escape(shown(report.sheet))}, in "
        f"{escape(report.currency)}. All times are UTC.</footer>",
        "</main>",
        "</body>",
        "</html>",
    ]
    return "\n".join(parts) + "\n"


def _browser_title(report: CostReport) -> str:
    if report.period is None:
        return "Twinbus report"
    return f"Twinbus report, {range_text(report.period.start_s, report.period.end_s)}"


def _scope(report: CostReport) -> str:
    if report.period is None:
        return "Nothing was recorded."
    period = report.period
    texts = [f"{range_text(period.start_s, period.end_s)} UTC ({span(period.length_s)})"]
    if report.namespaces_count:
        names = ", ".join(shown(name, 40) for name in report.namespaces)
        left = report.namespaces_count - len(report.namespaces)
        texts.append(("namespace " if report.namespaces_count == 1 else "namespaces ") + names)
        if left > 0:
            texts[-1] += f" and {plural(left, 'other', 'others')}"
    return escape(" · ".join(texts))


def numbers(report: CostReport) -> list[tuple[str, str]]:
    """The key figures at the top: name and value."""
    peak = max((each for each in (report.backlog.depth if report.backlog else ()) if each is not None), default=None)
    counted = sum(report.operations.totals.values()) if report.operations else 0
    added = outage_bill(report)
    return [
        ("messages sent", f"{report.sent:,}"),
        ("deliveries to receivers", f"{report.received:,}"),
        ("messages diverted", f"{report.diverted:,}"),
        ("brought home", f"{report.syphoned:,}"),
        ("brought home twice", f"at most {report.repeated:,}" if report.repeated else "0"),
        ("lost", "0" if not report.missing else f"{report.missing:,} not home yet"),
        ("failed over", span(report.failed_over_s)),
        ("slowest through the backlog", "-" if report.latency is None else span(report.latency.max_ms / 1000)),
        ("most in the backlog", "-" if peak is None else f"{peak:,}"),
        ("operations", f"{counted:,}"),
        (f"{report.currency} on the bill for outages", "-" if added is None else amount(added)),
        (f"{report.currency} on the bill in all", amount(report.cost.amount) if report.stages else "-"),
    ]


def _numbers(report: CostReport) -> str:
    cells = "\n".join(f"<div><dt>{escape(name)}</dt><dd>{escape(value)}</dd></div>" for name, value in numbers(report))
    return f'<dl class="numbers">\n{cells}\n</dl>'


def _section(section: ReportSection, report: CostReport) -> str:
    parts = [f"<section>\n<h2>{escape(section.title)}</h2>", f'<p class="lead">{escape(section.lead)}</p>']
    if (chart := section.chart(report)) is not None:
        caption = f"<figcaption>{escape(section.caption)}</figcaption>"
        parts.append(
            f'<figure>\n<div class="scroll" tabindex="0" role="group" aria-label="{escape(section.caption)}">'
            f"{chart}</div>\n{caption}\n</figure>"
        )
    for at, make in enumerate(section.tables):
        table = make(report)
        if not table.rows and at:
            continue
        if len(section.tables) > 1 and table.rows:
            parts.append(f"<h3>{escape(table.title)}</h3>")
        parts.append(_table(table))
    return "\n".join(parts) + "\n</section>"


def _table(table: Listing) -> str:
    if not table.rows:
        return f'<p class="nothing">{escape(table.nothing)}</p>'
    heads = "".join(f'<th scope="col" class={_kind(table, name)}>{escape(name)}</th>' for name in table.columns)
    rows = []
    for at, row in enumerate(table.rows):
        stage = table.stages[at] if at < len(table.stages) else ""
        cells = []
        for place, (name, cell) in enumerate(zip(table.columns, row, strict=True)):
            dot = _dot(stage) if place == 0 and stage else ""
            cells.append(f"<td class={_kind(table, name)}>{dot}{escape(cell)}</td>")
        last = " class=sum" if table.last_is_sum and at == len(table.rows) - 1 else ""
        rows.append(f"<tr{last}>{''.join(cells)}</tr>")
    note = f'\n<p class="note">{escape(table.note)}</p>' if table.note else ""
    body = "\n".join(rows)
    return (
        f'<div class="scroll" tabindex="0" role="group" aria-label="{escape(table.title)}">\n<table>\n'
        f"<thead><tr>{heads}</tr></thead>\n<tbody>\n{body}\n</tbody>\n</table>\n</div>{note}"
    )


def _kind(table: Listing, column: str) -> str:
    """The class of a column's cells."""
    if column in table.numbers:
        return "number"
    return "time" if column.endswith("(UTC)") else "name"


def _dot(stage: str) -> str:
    name = stage if stage in palette.STAGES else "other"
    return f'<span class="dot" style="background:var(--{name})"></span>'
