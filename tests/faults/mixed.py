"""Everything at once, with an account of every message: `make faults`, and a quick form in `make test`.

Both receive modes, bodies of 10 B to 100 MB, slow and stalled readers, readers that vanish, HTTP and AMQP, entities
that are deleted and created again under open links, clock changes, bits that are flipped on disk, transactions that
commit in steps and share bodies with other receivers, orderly stops and kill -9. A seed determines what is done when.
"""

from __future__ import annotations

import argparse
import json
import mmap
import random
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import kill
import mixed_transactions
from mixed_checker import FAULTS, Did, MixedReport, check
from mixed_load import (
    PATIENCE_S,
    Churn,
    Death,
    HangUp,
    PeekLock,
    RestReceive,
    RestSend,
    Run,
    Schedule,
    Send,
    SendTwice,
    Take,
    Talk,
    Vanish,
    Worker,
    drain,
)

HOOKS = Path(__file__).with_name("mixed_hooks")
DAY_MS = 86_400_000
PROGRESS_QUICK_S = 40.0
LARGE_BYTES = 104_857_600
# What a message adds to its body must fit too.
BODY_BYTES_MAX = LARGE_BYTES - 4_096
CHURN = "churn"
NEWS = "news"
NEWS_PATH = f"{NEWS}/Subscriptions/all"
# Nobody reads them before the end, one with locks and one without: their bodies are damaged.
KEPT = ("kept-lock", "kept-take")
PLAIN = ("lock", "take", "slow-lock", "slow-take", "vanish", "rest", "hangup", "ids", "later", "large", *KEPT)

STEPS: dict[str, int] = {"kill": 6, "stop": 2, "clock": 5, "delete": 4, "damage": 2}
QUICK = ("delete", "clock", "kill", "damage", "delete", "stop")


def entities() -> str:
    """The queues and topics as TOML."""
    return mixed_transactions.entities(kill.NAMESPACE) + "".join(
        f'[namespaces.{kill.NAMESPACE}.queues.{path}]\nlock_duration = "PT5M"\nmax_delivery_count = 2000\n'
        f"max_megabytes = 5120\nmax_message_bytes = {LARGE_BYTES}\n"
        + ("requires_duplicate_detection = true\n" if path == "ids" else "")
        for path in PLAIN
    )


def usual(rng: random.Random) -> int:
    """10 B to 100 KB, small ones more often."""
    return int(10 ** rng.uniform(1, 5))


def quarter(rng: random.Random) -> int:
    """Bodies of up to 250 KB: a few hundred fill any buffer."""
    return rng.choice((1_000, 250_000, 250_000))


def large(rng: random.Random) -> int:
    return int(10 ** rng.uniform(5, 7.3)) if rng.random() < 0.8 else rng.randint(24_000_000, BODY_BYTES_MAX)


def kept(rng: random.Random) -> int:
    """Some share a page with others, some have their own pages."""
    return rng.randint(10, 5_000)


def large_once(rng: random.Random) -> int:
    """For a short run: one body that is larger than any buffer, then small ones."""
    sizes: Iterator[int] = rng.__dict__.setdefault("sizes", iter((30_000_000,)))
    return next(sizes, 100_000)


class Mixed:
    """One run."""

    def __init__(
        self,
        folder: Path,
        seed: int,
        *,
        quick: tuple[str, ...],
        planted: str | None,
        without: tuple[str, ...],
        tell: Callable[[str], None],
    ) -> None:
        self.rng = random.Random(seed)
        self.tell = tell
        # The steps of a short run; empty for a run of minutes.
        self.quick = quick
        self.clock = folder / "clock"
        self.clock.write_text("0")
        environment = {"MIXED_CLOCK": str(self.clock)} | ({} if planted is None else {"MIXED_PLANTED": planted})
        self.broker = kill.Broker(folder, HOOKS, entities=entities(), **environment)
        self.run = Run(self.broker.port, seed, 1.0 if quick else 3.0)
        # How far the clock has been ahead.
        self.clock_max_ms = 0
        self.damaged: set[str] = set()
        # Steps that are left out.
        self.without = without
        # Number of faults already printed.
        self.told = 0

    # --- the broker -------------------------------------------------------------------------------------------------

    def start(self) -> None:
        self.broker.start()
        self.run.life += self.run.life % 2

    def end(self, *, orderly: bool) -> None:
        self.run.life += 1
        if orderly:
            self.broker.stop()
        else:
            self.broker.kill()
        self.run.log(Did.STOPPED if orderly else Did.KILLED)

    def admin(self, *questions: tuple[str, dict[str, Any]]) -> None:
        talk = Talk(self.run)
        try:
            for operation, body in questions:
                status, condition, _ = talk.call("$management", f"twinbus:{operation}", body)
                assert status == 200, f"{operation}: {status} {condition}"
        finally:
            talk.socket.close()

    # --- what is done to it -----------------------------------------------------------------------------------------

    def kill(self) -> str:
        in_a_commit = self.rng.random() < 0.5 and self.run.committing.wait(5.0)
        time.sleep(self.rng.uniform(0.0, 0.1 if in_a_commit else 0.5))
        self.end(orderly=False)
        self.start()
        return "killed and back"

    def stop(self) -> str:
        self.end(orderly=True)
        self.check_folder()
        self.start()
        return "stopped, checked and back"

    def clock_set(self, ms: int | None = None) -> str:
        """Set the clock. It ends ahead of where it began, so that scheduled messages become due."""
        step_ms = ms if ms is not None else self.rng.choice((-DAY_MS, DAY_MS, -3_600_000, 3_600_000, -2_000, 2_000))
        self.run.clock_ms += step_ms
        self.clock_max_ms = max(self.clock_max_ms, self.run.clock_ms)
        draft = self.clock.with_suffix(".draft")
        draft.write_text(str(self.run.clock_ms))
        draft.rename(self.clock)
        time.sleep(1.0)
        return f"clock set by {step_ms / 1000:.0f} s"

    def create(self) -> tuple[tuple[str, dict[str, Any]], ...]:
        return (
            ("create-queue", {"path": CHURN}),
            ("create-topic", {"path": NEWS}),
            ("create-subscription", {"topic": NEWS, "name": "all", "lock_duration_ms": 300_000}),
        )

    def delete(self) -> str:
        run = self.run
        for place in (CHURN, NEWS):
            run.deletions[place] = run.deletions.get(place, 0) + 1
            run.log(Did.DELETING, place)
        self.admin(("delete-queue", {"name": CHURN}), ("delete-topic", {"name": NEWS}), *self.create())
        for place in (CHURN, NEWS):
            run.log(Did.DELETED, place)
            run.waiting[place] = 0
            run.deletions[place] += 1
        return "deleted and made again"

    def damage(self) -> str:
        """Flip one bit in the body of a message that nobody has received."""
        self.end(orderly=True)
        file = self.broker.folder / "data" / kill.NAMESPACE / "data.mdb"
        for place in KEPT:
            accepted = [entry.name for entry in self.run.entries if entry.did is Did.ACCEPTED and entry.place == place]
            whole = [name for name in accepted if name not in self.damaged and self.run.sizes[name] > 100]
            if whole:
                name = self.rng.choice(whole)
                self.damaged.add(name)
                # From now on the message may be missing.
                self.run.log(Did.DAMAGED, place, name)
                assert flip(file, f"{name}|".encode()), f"{name} is not on disk"
        self.start()
        return f"{len(self.damaged)} bodies damaged so far"

    def check_folder(self) -> None:
        command = [str(Path(sys.executable).with_name("twinbus")), "check", str(self.broker.folder / "data")]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE_S)
        if done.returncode != 0 and not self.damaged:
            self.run.log(Did.REFUSED, "check", (done.stdout + done.stderr)[:500])

    # --- the whole --------------------------------------------------------------------------------------------------

    def workers(self) -> list[Worker]:
        run, quick = self.run, self.quick
        found: list[Worker] = [
            Send(run, "lock", usual),
            PeekLock(run, "lock"),
            Send(run, "take", quarter, waiting_max=400),
            Take(run, "take"),
            Send(run, "slow-lock", quarter, waiting_max=150),
            PeekLock(run, "slow-lock", slow=True, credit=200),
            Send(run, "slow-take", quarter, waiting_max=300),
            Take(run, "slow-take", slow=True),
            Send(run, "vanish", quarter, waiting_max=150),
            Vanish(run, "vanish"),
            RestSend(run, "rest"),
            Send(run, "rest", usual, waiting_max=100),
            RestReceive(run, "rest"),
            HangUp(run, "hangup"),
            SendTwice(run, "ids", usual),
            PeekLock(run, "ids"),
            Schedule(run, "later", usual),
            PeekLock(run, "later"),
            Send(run, "large", large_once if quick else large, waiting_max=3, pause_s=0.3 if quick else 2.0),
            PeekLock(run, "large", credit=2),
            Take(run, "large", credit=1),
            *(Send(run, place, kept, waiting_max=2_000, pause_s=0.1) for place in KEPT),
            Churn(run, CHURN),
            PeekLock(run, CHURN),
            Churn(run, NEWS, NEWS_PATH),
            PeekLock(run, NEWS, path=NEWS_PATH),
            *mixed_transactions.workers(run, usual, 0.1 if quick else 0.3),
        ]
        return found

    def steps(self, minutes: float) -> Iterator[str]:
        end = time.monotonic() + minutes * 60
        yield from self.quick or QUICK
        while not self.quick and time.monotonic() < end:
            yield self.rng.choices(list(STEPS), list(STEPS.values()))[0]

    def go(self, minutes: float) -> MixedReport:
        self.start()
        self.admin(*self.create())
        workers = self.workers()
        for worker in workers:
            worker.start()
        done = {
            "kill": self.kill,
            "stop": self.stop,
            "clock": self.clock_set,
            "delete": self.delete,
            "damage": self.damage,
        }
        try:
            for number, step in enumerate(self.steps(minutes), 1):
                self.progress()
                if self.red:
                    break
                told = done[step]() if step not in self.without else f"no {step}"
                self.tell(f"{number}: {told}; {len(self.run.entries):,} lines")
                self.tell_faults()
            self.progress()
        finally:
            self.run.stopping.set()
        for worker in workers:
            worker.join(PATIENCE_S)
            assert not worker.is_alive(), f"{worker.name} does not end"
        if self.run.failures:
            raise self.run.failures[0]
        if not self.red:
            self.last_look()
        report = check(self.run.entries)
        if self.red:
            report.lost = []  # nobody looked at what is left
        return report

    @property
    def red(self) -> bool:
        """Whether a short run already has a fault, and cannot pass any more."""
        return bool(self.quick and self.run.faults)

    def progress(self) -> None:
        """Wait until every reader has received something since the last step."""
        run = self.run
        places = ("lock", "take", "slow-lock", "slow-take", "rest", "ids", "shared-b", "out", CHURN, NEWS)
        before = dict(run.seen)
        end = time.monotonic() + (PROGRESS_QUICK_S if self.quick else PATIENCE_S)
        while any(run.seen.get(place, 0) == before.get(place, 0) for place in places):
            if self.red:
                return
            if run.failures or time.monotonic() > end:
                still = [place for place in places if run.seen.get(place, 0) == before.get(place, 0)]
                run.log(Did.REFUSED, ", ".join(still), "nothing comes any more")
                return
            time.sleep(0.05)

    def tell_faults(self) -> None:
        faults = [entry for entry in self.run.entries if entry.did in FAULTS]
        for entry in faults[self.told : self.told + 10]:
            self.tell(f"    {entry.did} {entry.place}: {entry.name}")
        self.told = len(faults)

    def last_look(self) -> None:
        """Restart from disk, let every scheduled message become due, and receive all that is left."""
        self.end(orderly=False)
        self.start()
        # The clock may have been days ahead when a message was scheduled.
        self.clock_set(self.clock_max_ms - self.run.clock_ms + DAY_MS)
        drain(self.run, [(KEPT[0], KEPT[0], Did.FOUND)], delete=False)
        paths = [(path, path) for path in (*PLAIN, CHURN) if path != KEPT[0]]
        paths += [(NEWS_PATH, NEWS), *mixed_transactions.PATHS]
        drain(self.run, [(path, place, Did.FOUND) for path, place in paths])
        drain(self.run, [(f"{path}/$DeadLetterQueue", place, Did.FOUND_DEAD) for path, place in paths])


def flip(file: Path, mark: bytes) -> int:
    """Flip one bit behind each copy of a mark, because unused pages may hold some. Returns the number of copies."""
    count = 0
    with file.open("r+b") as opened, mmap.mmap(opened.fileno(), 0) as data:
        at = data.find(mark)
        while at >= 0:
            data[at + len(mark) + 7] ^= 0x10
            count += 1
            at = data.find(mark, at + len(mark))
    return count


def run(
    seed: int,
    *,
    minutes: float = 30.0,
    quick: tuple[str, ...] = (),
    planted: str | None = None,
    without: tuple[str, ...] = (),
    tell: Callable[[str], None] = lambda _: None,
) -> MixedReport:
    """The whole run; a broker that does not come back is a fault by itself."""
    with tempfile.TemporaryDirectory(prefix="twinbus-mixed-", ignore_cleanup_errors=True) as name:
        mixed = Mixed(Path(name), seed, quick=quick, planted=planted, without=without, tell=tell)
        try:
            return mixed.go(minutes)
        except (RuntimeError, Death, AssertionError) as error:
            mixed.run.log(Did.REFUSED, "broker", "".join(traceback.format_exception(error))[-1500:])
            report = check(mixed.run.entries)
            # Nobody could look at what is left.
            report.lost = []
            return report
        finally:
            mixed.run.stopping.set()
            mixed.run.life += 1
            mixed.broker.kill()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--quick", action="store_true", help="the form that `make test` runs")
    parser.add_argument("--planted", help="a module of mixed_hooks that puts an old fault back")
    parser.add_argument("--without", action="append", default=[], choices=list(STEPS), help="leave a step out")
    parser.add_argument("--json", action="store_true", help="print the report as JSON, and no progress")
    options = parser.parse_args()
    # Ending the run must end its broker too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    began = time.monotonic()

    def tell(text: str) -> None:
        if not options.json:
            print(f"{time.monotonic() - began:6.0f} s  {text}", flush=True)

    tell(f"seed {options.seed}")
    without = tuple(options.without)
    report = run(
        options.seed,
        minutes=options.minutes,
        quick=QUICK if options.quick else (),
        planted=options.planted,
        without=without,
        tell=tell,
    )
    if options.json:
        print(json.dumps({"seed": options.seed, "seconds": round(time.monotonic() - began), **report.to_json()}))
    else:
        print(f"seed {options.seed}: {report}")
        for kind in ("lost", "resurrected", "unexpected", "faults"):
            for each in getattr(report, kind)[:20]:
                print(f"  {kind}: {each} {report.histories.get(each, '')}")
    return 0 if report.good else 1


if __name__ == "__main__":
    sys.exit(main())
