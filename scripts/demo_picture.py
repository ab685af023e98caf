"""Draws docs/pictures/demo.svg: what `twinbus demo` shows in the middle of an outage, from a real run."""

from __future__ import annotations

import asyncio
import io
import logging
import re
import tempfile
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import MONOKAI

from twinbus.demo.screen import Screen
from twinbus.demo.story import DemoOptions, Phase, Story

TARGET = Path(__file__).parent.parent / "docs" / "pictures" / "demo.svg"
COLUMNS = 92
DESCRIPTION = (
    "A terminal during the demonstration: the primary namespace is not running, both entities have failed over, sends "
    "go on at their rate, and the backlog grows."
)
# How full the backlog is in the picture.
DEPTH = 500
# The drawing library would load its font from elsewhere.
FONTS = re.compile(r"@font-face\s*\{.*?\}\s*", re.DOTALL)


async def main() -> None:
    for name in ("azure", "twinbus.paired"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    screen = Screen(Console(file=io.StringIO()))
    with tempfile.TemporaryDirectory() as folder:
        story = Story(Path(folder), DemoOptions(seed=1, rate=60, outage_s=15, engine="spark", report=None), screen.line)
        async with screen as show:
            show(story)
            running = asyncio.create_task(story.run())
            while story.phase is not Phase.DIVERTED or story.depth < DEPTH:
                if running.done():
                    await running
                await asyncio.sleep(0.1)
            drawn = Console(
                record=True, file=io.StringIO(), width=COLUMNS, force_terminal=True, color_system="truecolor"
            )
            drawn.print(screen.picture())
            await running
    TARGET.write_text(described(FONTS.sub("", drawn.export_svg(title="twinbus demo", theme=MONOKAI))))


def described(svg: str) -> str:
    """With words for those who cannot see it."""
    start, end, rest = svg.partition(">")
    return f"{start}{end}\n    <title>twinbus demo</title>\n    <desc>{DESCRIPTION}</desc>{rest}"


if __name__ == "__main__":
    asyncio.run(main())
