"""What the demonstration shows, drawn by the real terminal library from a story that has not begun."""

from __future__ import annotations

from collections.abc import Callable
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from twinbus.demo import story as story_module
from twinbus.demo.screen import Screen, result
from twinbus.demo.story import DemoOptions, Phase, Story

PLAN = DemoOptions(seed=1, rate=60, outage_s=5, engine="local", report=None)


async def test_a_terminal_gets_a_picture(tmp_path: Path) -> None:
    console = Console(record=True, force_terminal=True, width=100, file=StringIO())
    screen = Screen(console)
    async with screen as show:
        story = Story(tmp_path, PLAN, screen.line)
        story.phase = Phase.DIVERTED
        story.depths["contoso/x-servicebus-transfer/0"] = 41
        story.depths["contoso/x-servicebus-transfer/1"] = 1
        story.senders.diverted["orders"] = 42
        story.account.sent("orders", "1")
        show(story)
    shown = console.export_text()
    for text in (
        "into the backlog queues of the secondary",
        "orders",
        "42 messages",
        "accounted for",
        "0.0%",
        "contoso",
    ):
        assert text in shown


async def test_elsewhere_there_are_lines(tmp_path: Path) -> None:
    console = Console(record=True, force_terminal=False, width=40, file=StringIO())
    screen = Screen(console)
    async with screen as show:
        show(Story(tmp_path, PLAN, screen.line))
        screen.line("a line that is longer than the console is wide [not markup]")
    assert "a line that is longer than the console is wide [not markup]" in console.export_text()


def test_the_result_names_every_place_and_what_is_lost(tmp_path: Path) -> None:
    story = Story(tmp_path, PLAN, lambda _: None)
    story.account.sent("events", "1")
    story.account.received("events/audit", "1")
    story.account.received("events/audit", "1")
    console = Console(record=True, width=80, file=StringIO())
    console.print(result(story))
    lines = {line.split()[0]: line.split()[1:] for line in console.export_text().splitlines() if "/" in line}
    assert lines == {"events/audit": ["1", "1", "1", "0"], "events/billing": ["1", "0", "0", "1"]}


async def test_the_report_has_a_bar_and_its_step(tmp_path: Path) -> None:
    plan = DemoOptions(seed=1, rate=60, outage_s=5, engine="local", report=tmp_path / "report.html")
    for terminal, wanted in ((True, "adding up: costs"), (False, "report, step 4 of 10: adding up: costs")):
        console = Console(record=True, force_terminal=terminal, width=100, file=StringIO())
        screen = Screen(console)
        async with screen as show:
            folder = tmp_path / str(terminal)
            folder.mkdir()
            story = Story(folder, plan, screen.line)
            show(story)
            story.phase = Phase.REPORTING
            story._step("3/10 adding up: costs")
            assert story.step == (3, 10, "adding up: costs")
            story._step("a warning of some library")
        assert wanted in console.export_text()
        assert screen._summary() == "  report, step 4 of 10: adding up: costs"


async def test_a_share_of_nothing_is_not_shown(tmp_path: Path) -> None:
    console = Console(record=True, force_terminal=True, width=100, file=StringIO())
    screen = Screen(console)
    async with screen as show:
        show(Story(tmp_path, PLAN, screen.line))
        assert screen._summary() == "  nothing was sent yet"
    shown = console.export_text()
    assert "%" not in shown
    assert "nothing was sent yet" in shown


async def test_the_bars_of_the_last_frame_are_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def reported(*arguments: str, heard: Callable[[str], None]) -> dict[str, str]:
        heard("9/10 writing the page")
        return {"sentence": ""}

    monkeypatch.setattr(story_module, "told", reported)
    plan = DemoOptions(seed=1, rate=60, outage_s=5, engine="local", report=tmp_path / "report.html")
    console = Console(record=True, force_terminal=True, width=100, file=StringIO())
    screen = Screen(console)
    async with screen as show:
        story = Story(tmp_path, plan, screen.line)
        story.account.sent("orders", "1")
        story.account.received("orders", "1")
        show(story)
        await story._report()
        story._turn(Phase.DONE)
    assert story.step == (10, 10, "")
    assert story.account.share == 1.0
    assert "100.0%" in console.export_text()
