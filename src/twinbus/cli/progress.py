"""Progress of a running syphon: a live table on a terminal, or one JSON line per second for programs."""

from __future__ import annotations

import json
import sys
from collections.abc import Collection
from typing import TYPE_CHECKING, Any, Protocol

import typer

from twinbus.clock import Clock, MonotonicClock

if TYPE_CHECKING:
    from rich.live import Live
    from rich.table import Table

    from twinbus.paired.syphon.tally import Tally

_NUMBERS = ("depth", "received", "syphoned", "dead-lettered", "tried again", "per second")


class Shown(Protocol):
    """The interface of a syphon, local or on Spark."""

    @property
    def tally(self) -> Tally: ...

    @property
    def outage(self) -> str: ...

    @property
    def outages(self) -> dict[str, str]: ...

    @property
    def failing(self) -> list[str]: ...

    @property
    def state(self) -> str: ...


class Progress:
    """Shows a syphon's progress; the caller fills in `depths` if it can count messages."""

    def __init__(self, syphon: Shown, *, as_json: bool, quiet: bool = False, clock: Clock | None = None) -> None:
        self._syphon = syphon
        self._as_json = as_json
        # Show nothing before the end.
        self._quiet = quiet
        # For rates.
        self._clock = clock or MonotonicClock()
        # Messages syphoned by queue at the last update, and its time.
        self._before: dict[str, int] = {}
        self._at_ms = self._clock.now_ms()
        # Messages in each backlog queue, as far as known.
        self.depths: dict[str, int] = {}
        # The live table on a terminal; None elsewhere.
        self._live: Live | None = None

    @property
    def queues(self) -> Collection[str]:
        """The backlog queues that the syphon works on."""
        return self._syphon.tally.queues.keys()

    def start(self) -> None:
        if not self._quiet and not self._as_json and sys.stderr.isatty():
            # Imported here, because loading rich takes longer than most commands.
            from rich.console import Console
            from rich.live import Live

            self._live = Live(self._table(), console=Console(stderr=True, highlight=False), transient=True)
            self._live.start()

    def show(self) -> None:
        """Update; call it once a second."""
        if self._live is not None:
            self._live.update(self._table())
        elif self._as_json and not self._quiet:
            typer.echo(json.dumps(self._line()))

    def stop(self) -> None:
        if self._live is not None:
            self._live.stop()

    def _rates(self) -> dict[str, float]:
        now_ms = self._clock.now_ms()
        seconds = max(now_ms - self._at_ms, 1) / 1000
        counts = {name: tally.syphoned for name, tally in self._syphon.tally.queues.items()}
        rates = {name: (count - self._before.get(name, 0)) / seconds for name, count in counts.items()}
        self._before, self._at_ms = counts, now_ms
        return rates

    def _line(self) -> dict[str, Any]:
        rates = self._rates()
        total = self._syphon.tally.total()
        return {
            "state": self._syphon.state,
            "received": total.received,
            "syphoned": total.syphoned,
            "dead_lettered": total.dead_lettered,
            "per_second": round(sum(rates.values()), 1),
            "depth": sum(self.depths.values()) if self.depths else None,
            "outage": self._syphon.outage,
            "failing": self._syphon.failing,
        }

    def _table(self) -> Table:
        rates = self._rates()
        state = f"the primary cannot be reached: {self._syphon.outage}" if self._syphon.outage else self._syphon.state
        failing = self._syphon.failing
        if failing:
            state += f"; refusing for now: {', '.join(failing[:5])}"
        from rich.table import Table

        table = Table(box=None, pad_edge=False, header_style="bold", caption=state, caption_justify="left")
        table.add_column("backlog queue", overflow="fold")
        for name in _NUMBERS:
            table.add_column(name, justify="right")
        outages = self._syphon.outages
        for name, tally in sorted(self._syphon.tally.queues.items()):
            depth = f"{self.depths[name]:,}" if name in self.depths else outages.get(name, "-")
            table.add_row(
                name,
                depth,
                f"{tally.received:,}",
                f"{tally.syphoned:,}",
                f"{tally.dead_lettered:,}",
                f"{tally.left:,}",
                f"{rates.get(name, 0.0):,.0f}",
            )
        return table
