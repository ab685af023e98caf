"""`twinbus demo`: all of Twinbus in about a minute and a half.

Exit codes: 0 every message is accounted for; 1 a message was lost or something failed; 2 invalid command line.
"""

from __future__ import annotations

import asyncio
import logging
import shutil
import signal
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from twinbus.cli.pairing import need_sdk
from twinbus.cli.view import show_json
from twinbus.errors import ConfigError

if TYPE_CHECKING:
    from twinbus.demo.story import DemoOptions, Story

_ENGINES = ("spark", "local")


def demo(
    seed: Annotated[int, typer.Option(help="Random seed of contents, sizes and backlog queues.")] = 1,
    rate: Annotated[float, typer.Option(metavar="NUMBER", min=1, max=500, help="Messages per second in total.")] = 60,
    outage: Annotated[
        float, typer.Option(metavar="SECONDS", min=1, max=600, help="How long the primary is down.")
    ] = 15,
    engine: Annotated[str, typer.Option(help="Engine of the syphon: spark or local.")] = "spark",
    report: Annotated[Path, typer.Option(metavar="FILE", help="File of the report.", show_default=True)] = Path(
        "twinbus-demo.html"
    ),
    no_report: Annotated[bool, typer.Option("--no-report", help="Skip the report, which needs Spark.")] = False,
    keep: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Keep data, ledgers and tables in this folder.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print only the result, as JSON.")] = False,
) -> None:
    """Kill a message bus under load, and lose nothing.

    Two namespaces start as separate processes. A paired client sends orders to a queue and events to a topic of the
    primary, and receivers consume them. The primary is killed with -9: sends continue, into the backlog queues of the
    secondary. After a restart the syphon moves the backlog to the primary, every message is accounted for, and the
    ledgers become a report.

    Example: twinbus demo --rate 100 --outage 30
    """
    need_sdk()
    if engine not in _ENGINES:
        raise ConfigError(f"--engine {engine!r}: use one of {', '.join(_ENGINES)}.")
    if engine == "spark" or not no_report:
        from twinbus.spark.session import need_pyspark

        need_pyspark()
    # Broken connections are the point of the demo: the SDK need not log each one.
    for name in ("azure", "twinbus.paired"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    from twinbus.demo.story import DemoOptions

    plan = DemoOptions(
        seed=seed,
        rate=rate,
        outage_s=outage,
        engine=engine,
        report=None if no_report else report.expanduser().absolute(),
    )
    folder = _folder(keep)
    try:
        story = asyncio.run(_run(folder, plan, as_json))
    except asyncio.CancelledError:
        raise typer.Exit(1) from None
    except ConfigError as error:
        advice = f"The logs are in {keep}." if keep is not None else "To see the logs, run it again with --keep DIR."
        raise ConfigError(f"{str(error).rstrip('.')}. {advice}") from None
    finally:
        if keep is None:
            shutil.rmtree(folder, ignore_errors=True)
    _tell(story, as_json, keep)
    if story.account.lost or story.account.raised:
        raise typer.Exit(1)


def _folder(keep: Path | None) -> Path:
    if keep is None:
        return Path(tempfile.mkdtemp(prefix="twinbus-demo-"))
    folder = keep.expanduser().absolute()
    try:
        folder.mkdir(mode=0o700, parents=True)
    except FileExistsError:
        if any(folder.iterdir()):
            raise ConfigError(f"{folder} is not empty: --keep takes a new folder.") from None
    except OSError as error:
        raise ConfigError(f"The folder {folder} cannot be made: {error.strerror}.") from None
    return folder


async def _run(folder: Path, plan: DemoOptions, as_json: bool) -> Story:
    from rich.console import Console

    from twinbus.demo.screen import Screen
    from twinbus.demo.story import Story

    # When told to stop, or when its output is closed, it ends its processes too.
    running = asyncio.current_task()
    assert running is not None
    stopping = False

    def stop() -> None:
        # Only once: a second cancellation would interrupt the cleanup that the first one started.
        nonlocal stopping
        if not stopping:
            stopping = True
            running.cancel()

    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop)

    class Watched(Console):
        def on_broken_pipe(self) -> None:
            # Rich would exit the process immediately.
            self.quiet = True
            stop()

    screen = Screen(Watched(quiet=as_json))
    async with screen as show:
        story = Story(folder, plan, screen.line)
        show(story)
        await story.run()
    return story


def _tell(story: Story, as_json: bool, keep: Path | None) -> None:
    account = story.account
    balances = account.balances()
    repeated = sum(each.repeated for each in balances.values())
    if as_json:
        show_json(
            {
                "sent": {entity: account.sent_count(entity) for entity in story.senders.diverted},
                "diverted": story.senders.diverted,
                "syphoned": story.syphon.syphoned,
                "places": {place: asdict(each) for place, each in balances.items()},
                "repeated": repeated,
                "raised": account.raised,
                "lost": account.lost,
                "seconds": round(story.seconds, 1),
                "sentence": None if story.told is None else story.told["sentence"],
                "report": None if story.plan.report is None else str(story.plan.report),
            }
        )
        return
    from rich.console import Console

    from twinbus.demo.screen import result

    console = Console(highlight=False)
    console.print()
    console.print(result(story))
    console.print()
    diverted = sum(story.senders.diverted.values())
    if account.lost or account.raised:
        console.print(
            f"LOST {account.lost}; sends that raised: {account.raised}. Please report it with --seed {story.plan.seed}."
        )
    else:
        console.print(
            f"Nothing lost. {diverted:,} messages went through the backlog; {repeated:,} came twice, with the same id."
        )
    if story.told is not None:
        console.print(story.told["sentence"], markup=False)
        if (fewer := sum(account.sent_count(entity) for entity in story.senders.diverted) - story.told["sent"]) > 0:
            console.print(
                f"The report counts {fewer:,} sends fewer: the ledger of a killed broker lacks its last second."
            )
    if story.plan.report is not None:
        console.print(f"The report: {story.plan.report}", soft_wrap=True)
    if keep is not None:
        console.print(f"Data, ledgers and tables: {keep}", soft_wrap=True)
