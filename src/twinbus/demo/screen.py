"""The demo's display: a live picture on a terminal, plain lines elsewhere."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import TracebackType
from typing import Final

from rich import box
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from twinbus.demo.story import Phase, Story
from twinbus.demo.traffic import PLACES
from twinbus.paired.state import EntityState

_RENEW_S: Final = 0.25
# Nobody waits longer without a sign of life.
_LINE_S: Final = 4.0
_BAR_CELLS: Final = 40
_STATES: Final = {EntityState.HEALTHY: "green", EntityState.SUSPECT: "yellow", EntityState.FAILED_OVER: "red"}


class Screen:
    """Shows a story while it runs."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._story: Story | None = None
        # The live picture on a terminal; None elsewhere.
        self._live: Live | None = None
        self._task: asyncio.Task[None] | None = None
        # Time of the last measurement, and the sends returned by then, by entity.
        self._before: tuple[float, dict[str, int]] = (0.0, {})
        self._rates: dict[str, float] = {}

    def line(self, text: str) -> None:
        """Print an event, unless the picture shows it."""
        if self._live is None:
            self._console.print(
                f"{self._story.seconds if self._story else 0:6.1f} s  {text}",
                highlight=False,
                markup=False,
                soft_wrap=True,
            )

    async def __aenter__(self) -> Callable[[Story], None]:
        return self._show

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        if self._live is not None:
            self._live.update(self.picture())
            self._live.stop()

    def _show(self, story: Story) -> None:
        self._story = story
        if self._console.is_terminal:
            self._live = Live(self.picture(), console=self._console, auto_refresh=False)
            self._live.start()
        self._task = asyncio.create_task(self._renew())

    async def _renew(self) -> None:
        since_s = 0.0
        while True:
            await asyncio.sleep(_RENEW_S)
            self._measure()
            if self._live is not None:
                self._live.update(self.picture(), refresh=True)
                continue
            since_s += _RENEW_S
            if since_s >= _LINE_S:
                since_s = 0.0
                self.line(self._summary())

    def _measure(self) -> None:
        story = self._the_story
        then_s, before = self._before
        if story.seconds - then_s >= 1.0:
            now = {entity: story.account.sent_count(entity) for entity in PLACES}
            self._rates = {e: (n - before.get(e, 0)) / (story.seconds - then_s) for e, n in now.items()}
            self._before = (story.seconds, now)

    @property
    def _the_story(self) -> Story:
        assert self._story is not None
        return self._story

    # --- layout -------------------------------------------------------------------------------------------------------

    def _summary(self) -> str:
        story = self._the_story
        if story.phase is Phase.REPORTING:
            done, total, text = story.step
            return f"  report, step {min(done + 1, total)} of {total}: {text}"
        share = story.account.share
        if share is None:
            return "  nothing was sent yet"
        sent = sum(story.account.sent_count(entity) for entity in PLACES)
        diverted = sum(story.senders.diverted.values())
        return (
            f"  sent {sent:,}, diverted {diverted:,}, in the backlog {story.depth:,}, "
            f"syphoned {story.syphon.syphoned:,}, accounted for {share:.1%}"
        )

    def picture(self) -> RenderableType:
        """Return the current picture for a terminal."""
        story = self._the_story
        done = story.phase is Phase.DONE
        head = Text.assemble((f"{story.seconds:5.1f} s  ", "dim"), (str(story.phase), "bold green" if done else "bold"))
        parts: list[RenderableType] = [
            head,
            Text(),
            self._namespaces(),
            Text(),
            self._entities(),
            Text(),
            self._backlog(),
        ]
        if story.events:
            parts += [Text(), *(Text(f"{at:6.1f} s  {text}", style="dim") for at, text in story.events)]
        return Panel(Group(*parts), title="Twinbus", title_align="left", box=box.ROUNDED, padding=(1, 2))

    def _namespaces(self) -> Table:
        story = self._the_story
        table = _table("process", "", "what it is")
        for process, what in (
            (story.primary, "the primary namespace"),
            (story.secondary, "the secondary namespace, with the backlog queues"),
            (story.syphon, f"the syphon, engine {story.plan.engine}"),
        ):
            state = Text("running", style="green") if process.running else Text("not running", style="red")
            if process is story.syphon and not process.running:
                state = Text("done" if process.at_work else "waits", style="dim")
            elif process is story.syphon and not process.at_work:
                state = Text("starting", style="yellow")
            table.add_row(process.name, state, what)
        return table

    def _entities(self) -> Table:
        story = self._the_story
        table = _table("entity", "state", "sent", "a second", "diverted", "received")
        for column in table.columns[2:]:
            column.justify = "right"
        states = story.senders.states
        for entity, places in PLACES.items():
            state = states[entity]
            received = " / ".join(f"{story.account.received_count(place):,}" for place in places)
            table.add_row(
                entity,
                Text(state, style=_STATES[state]),
                f"{story.account.sent_count(entity):,}",
                f"{self._rates.get(entity, 0):,.0f}",
                f"{story.senders.diverted[entity]:,}",
                received,
            )
        return table

    def _backlog(self) -> Table:
        story = self._the_story
        table = Table.grid(padding=(0, 2))
        most = max(story.depth_max, story.depth, 1)
        table.add_row(
            "backlog", ProgressBar(total=most, completed=story.depth, width=_BAR_CELLS), f"{story.depth:,} messages"
        )
        share = story.account.share
        table.add_row(
            "accounted for",
            ProgressBar(total=1.0, completed=share or 0.0, width=_BAR_CELLS),
            "nothing was sent yet" if share is None else f"{share:.1%}",
        )
        if story.plan.report is not None:
            done, total, text = story.step
            table.add_row("report", ProgressBar(total=total, completed=done, width=_BAR_CELLS), text)
        return table


def result(story: Story) -> Table:
    """Return the final account as a table."""
    table = _table("came out of", "sent", "received", "repeated", "lost")
    for column in table.columns[1:]:
        column.justify = "right"
    for place, balance in story.account.balances().items():
        table.add_row(
            place,
            f"{balance.sent:,}",
            f"{balance.received:,}",
            f"{balance.repeated:,}",
            Text(f"{balance.lost:,}", style="bold red" if balance.lost else "bold green"),
        )
    return table


def _table(*names: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim", padding=(0, 2, 0, 0))
    for name in names:
        table.add_column(name, no_wrap=True)
    return table
