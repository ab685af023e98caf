"""What the demonstration shows, drawn by the real terminal library from a story that has not begun."""

from __future__ import annotations

from io import StringIO
from pathlib import Path

from rich.console import Console

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
