"""`twinbus plan`: what an outage of a given length does to a given load, and what it costs.

Rules:
- The result is computed at once from closed forms; `--trials` also simulates the spread at random on Spark.
- The assumptions are printed with the result.
"""

from __future__ import annotations

import math
from dataclasses import asdict
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from twinbus.cli.chart import area, bar
from twinbus.cli.pairing import Json
from twinbus.cli.view import show_json, show_table
from twinbus.durations import parse_ms
from twinbus.limits import (
    BACKLOG_QUEUES_DEFAULT,
    PLAN_COUNT_MAX,
    PLAN_TRIALS_MAX,
    SYPHON_DRAIN_RATE,
)
from twinbus.plan.wording import money, number, share, size, span

if TYPE_CHECKING:
    from twinbus.plan.plan import Plan
    from twinbus.spark.spread import Drawn

_COLUMNS = 60
_SIZES = {"k": 1_024, "kb": 1_024, "m": 1_024**2, "mb": 1_024**2, "b": 1, "": 1}


def seconds(text: str) -> float:
    """Parse a duration into seconds, as in the other commands; a bare number is seconds."""
    plain = text.strip()
    return float(plain) if plain.replace(".", "", 1).isdigit() else parse_ms(plain) / 1000


def size_bytes(text: str) -> int:
    """Parse a size: `900`, `2KB`, `1MB`."""
    digits = text.strip().rstrip("KMBkmb ")
    factor = _SIZES.get(text.strip()[len(digits) :].strip().lower())
    try:
        return round(float(digits) * (factor or math.nan))
    except ValueError:
        raise typer.BadParameter(f"{text!r} is not a size: write 900, 2KB or 1MB.") from None


def plan(
    clients: Annotated[int, typer.Option(min=1, max=PLAN_COUNT_MAX, help="Number of sending processes.")] = 1,
    senders: Annotated[int, typer.Option(min=1, max=PLAN_COUNT_MAX, help="Senders per process.")] = 1,
    entities: Annotated[
        int, typer.Option(min=1, max=PLAN_COUNT_MAX, help="Queues and topics that each sender sends to.")
    ] = 1,
    rate: Annotated[float, typer.Option(min=0, help="Messages per second of all clients together.")] = 100.0,
    message_size: Annotated[
        str, typer.Option("--size", metavar="SIZE", help="Size of a message: 900, 2KB, 1MB.")
    ] = "1KB",
    outage: Annotated[str, typer.Option(metavar="TIME", help="Length of the outage: 90s, 30m, 4h.")] = "10m",
    queues: Annotated[
        int, typer.Option("--backlog-queues", min=1, max=PLAN_COUNT_MAX, help="Number of backlog queues.")
    ] = BACKLOG_QUEUES_DEFAULT,
    failover_interval: Annotated[str, typer.Option(metavar="TIME", help="Failover interval of the pair.")] = "60s",
    ping_interval: Annotated[str, typer.Option(metavar="TIME", help="Ping interval of the pair.")] = "60s",
    drain_rate: Annotated[float, typer.Option(help="Messages per second of all syphons together.")] = SYPHON_DRAIN_RATE,
    syphons: Annotated[int, typer.Option(min=1, max=PLAN_COUNT_MAX, help="Number of syphons.")] = 1,
    skew: Annotated[
        float,
        typer.Option(min=0, max=3, help="Skew of the senders: the n-th sends n^-SKEW times what the first sends."),
    ] = 0.0,
    prices: Annotated[str, typer.Option(metavar="SHEET", help="Price sheet: a name or a file.")] = "standard",
    used: Annotated[int, typer.Option(min=0, help="Units used this month before the outage.")] = 0,
    trials: Annotated[
        int, typer.Option(min=0, max=PLAN_TRIALS_MAX, help="Also simulate the spread N times on Spark.")
    ] = 0,
    seed: Annotated[int, typer.Option(min=0, help="Random seed of the simulation.")] = 1,
    master: Annotated[str | None, typer.Option(metavar="URL", help="Spark master of the simulation.")] = None,
    chart: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write a chart to this file: .svg or .png.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Plan an outage: how the backlog fills and drains, and what it costs.

    \b
    Example:
      twinbus plan --clients 20 --senders 4 --entities 4 --rate 500 --size 2KB --outage 30m
      twinbus plan --rate 2000 --outage 4h --backlog-queues 20 --trials 100000 --chart outage.svg
    """
    from twinbus.ledger.prices import Sheet
    from twinbus.plan.load import Load
    from twinbus.plan.plan import plan_of

    load = Load(
        clients=clients,
        senders=senders,
        entities=entities,
        rate=rate,
        size_bytes=size_bytes(message_size),
        outage_s=seconds(outage),
        queues=queues,
        failover_interval_s=seconds(failover_interval),
        ping_interval_s=seconds(ping_interval),
        drain_rate=drain_rate,
        syphons=syphons,
        skew=skew,
    )
    answer = plan_of(load, Sheet.load(prices), used)
    drawn, silence = _drawn(answer, trials, seed, master)
    if chart is not None:
        from twinbus.spark.plan_chart import write_chart

        write_chart(answer, chart)
    if as_json:
        show_json(plan_fields(answer, drawn))
    else:
        _show(answer, drawn)
    for each in (*answer.warnings, *silence):
        typer.echo(f"! {each}", err=as_json)
    if chart is not None:
        typer.echo(f"chart: {chart}", err=as_json)


def _drawn(answer: Plan, trials: int, seed: int, master: str | None) -> tuple[Drawn | None, list[str]]:
    """Return the result of the trials; without Spark, none and the reason."""
    if not trials:
        return None, []
    from importlib.util import find_spec

    if find_spec("pyspark") is None:
        return None, ["Nothing was drawn: pyspark is not installed. Run `pip install 'twinbus[spark]'`."]
    from twinbus.spark.session import spark_session
    from twinbus.spark.spread import draw

    with spark_session("twinbus plan", master=master, brisk=True) as spark:
        return draw(spark, answer.load, trials=trials, seed=seed), []


def plan_fields(answer: Plan, drawn: Drawn | None) -> dict[str, Any]:
    """Return the plan for programs: seconds, bytes, shares of one, and amounts as strings to keep every digit."""
    found = _plain(asdict(answer))
    found["spread"]["probabilities"] = [
        {"share": where, "probability": probability} for where, probability in answer.spread.probabilities
    ]
    found["alternatives"] = [{**_plain(asdict(spread)), **_plain(asdict(fill))} for spread, fill in answer.alternatives]
    for each in found["alternatives"]:
        del each["probabilities"]
    found["drawn"] = None if drawn is None else asdict(drawn)
    return cast(dict[str, Any], found)


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Decimal):
        return f"{value:f}"
    # JSON has no infinity: null means never.
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _show(answer: Plan, drawn: Drawn | None) -> None:
    load, course, fill = answer.load, answer.outage, answer.fill
    typer.echo(
        f"{load.clients:,} x {load.senders:,} senders, {load.entities:,} entities, {number(load.rate)} messages/s of "
        f"{size(load.size_bytes)}; the primary away for {span(load.outage_s)}; {load.queues:,} backlog queues\n"
    )
    rows = [
        ["fail over", span(course.failover_s) if course.fails_over else "-", "after the outage begins"],
        ["fail back", span(course.back_s) if course.fails_over else "-", "the first ping that the primary takes"],
        ["messages held", number(course.held), "until the failover, then diverted"],
        ["messages diverted", number(course.diverted), size(course.diverted * load.backlog_bytes)],
        ["pings", number(course.pings), f"{course.pings_each:,} for each of {load.pinged:,} entities of clients"],
        [
            "drain",
            span(course.drain_s),
            f"at {number(load.drain_rate)}/s; {span(answer.drain_uneven_s)} with one pace a queue",
        ],
        ["backlog empty", span(course.drained_s), "after the outage begins"],
        ["latest message", span(course.latest_s), "late"],
    ]
    show_table(["outage", "", " "], rows, ("",))
    _show_backlog(answer)
    _show_spread(answer, drawn)
    _show_bill(answer)
    _show_alternatives(answer)
    typer.echo(
        f"\nidle polls: {number(answer.polls_hour)} an hour, {number(answer.polls_day)} a day, "
        f"{number(answer.polls_month)} in 30 days"
        + (
            f"; the fullest queue gets {size(fill.size_bytes)}, it takes {size(load.queue_bytes_max)}"
            if fill.messages
            else ""
        )
    )


def _show_backlog(answer: Plan) -> None:
    from twinbus.plan.outage import backlog_at

    course = answer.outage
    if not course.diverted:
        return
    end_s = course.drained_s * 1.02
    values = [backlog_at(answer.load, course, end_s * (at + 0.5) / _COLUMNS) for at in range(_COLUMNS)]
    lines = area(values)
    typer.echo(f"\nbacklog, at most {number(course.diverted)} messages")
    for line in lines:
        typer.echo(f"  {line}".rstrip())
    typer.echo(f"  0{span(end_s):>{_COLUMNS - 1}}\n")


def _show_spread(answer: Plan, drawn: Drawn | None) -> None:
    spread, fill, course = answer.spread, answer.fill, answer.outage
    rows = [
        ["even", share(spread.even), number(round(course.diverted * spread.even)), span(fill.all_full_s)],
        ["fullest, mean", share(spread.share), number(fill.messages), span(fill.full_s)],
        ["fullest, 95 %", share(spread.share_95), number(fill.messages_95), span(fill.full_95_s)],
    ]
    if drawn is not None:
        for name, value in (("mean", drawn.share), ("95 %", drawn.share_95), ("worst", drawn.share_max)):
            full_s = fill.all_full_s * spread.even / value
            rows.append([f"drawn, {name}", share(value), number(round(course.diverted * value)), span(full_s)])
    names = ("share", "messages", "full after")
    tops = max(float(row[1].split()[0]) for row in rows)
    show_table(["a queue", *names, ""], [[*row, bar(float(row[1].split()[0]), tops, 20)] for row in rows], names)
    empty = f"{number(spread.empty)} of {spread.queues:,} queues get no sender on average"
    how = "exact" if spread.exact else "estimated"
    typer.echo(
        f"{empty} ({how})" + (f"; {drawn.trials:,} trials, seed {drawn.seed}: {drawn.empty:.2f}" if drawn else "")
    )


def _show_bill(answer: Plan) -> None:
    bill = answer.bill
    rows = [
        [line.stage.value, line.what, number(line.count), number(line.units), money(line.list_amount, bill.currency)]
        for line in bill.lines
    ]
    rows += [
        ["", "all of it", number(bill.count), number(bill.units), money(bill.list_amount, bill.currency)],
        ["", "sent directly instead", number(bill.direct_count), number(bill.direct_units), ""],
        [
            "",
            "more by the outage",
            number(bill.extra_count),
            number(bill.extra_units),
            money(bill.extra_list_amount, bill.currency),
        ],
    ]
    numbers = ("operations", "units", "at list price")
    typer.echo("")
    show_table(["stage", "what", *numbers], rows, numbers)
    typer.echo(
        f"on the bill: {money(bill.extra_amount, bill.currency)} more by the outage, "
        f"{money(bill.amount, bill.currency)} in all, after {bill.used:,} units this month (price sheet {bill.sheet})"
    )
    typer.echo(
        f"bandwidth: {bill.bandwidth_bytes / 1e9:,.3f} GB at all stages, "
        f"{money(bill.bandwidth_list_amount, bill.currency)} at list price"
    )


def _show_alternatives(answer: Plan) -> None:
    from twinbus.limits import SYPHON_RECEIVE_S

    rows = [
        [
            ("> " if spread.queues == answer.load.queues else "") + f"{spread.queues:,}",
            share(spread.share),
            share(spread.share_95),
            number(spread.empty),
            span(fill.full_95_s),
            number(answer.load.syphons * spread.queues * 86_400 / SYPHON_RECEIVE_S),
        ]
        for spread, fill in answer.alternatives
    ]
    names = ("queues", "fullest", "in 95 %", "empty", "full after (95 %)", "idle polls a day")
    typer.echo("")
    show_table(list(names), rows, names)
    if answer.outage.diverted:
        needed = answer.queues_needed
        safely = (
            f"{needed:,} safely" if needed is not None else "no number is safe, senders have to go on from full ones"
        )
        typer.echo(f"the fewest queues that hold this backlog: {answer.queues_least:,}; {safely}")
