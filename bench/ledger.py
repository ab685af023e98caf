"""The ledger pipeline compared with the simplest Spark job on the same files.

    python bench/ledger.py [--records 20000000] [--folder DIR] [--memory 3g] [--check]

The broker's own writer (`ledger_files.py`) writes the ledgers of two brokers, one file per minute. Then each of these
runs in its own process and session, on two slots:

- plain:       spark.read.json(folder).groupBy("type").count(), as anybody would write it
- schema:      the same with the schema given
- full:        `pipeline.run` from the files to all tables; when it ends, Java keeps its classes (`spark/archive.py`)
- incremental: one hundredth of new files is added, and it runs again
- no archive:  the same from the same tables, with TWINBUS_ARCHIVE=off
- following:   in the same session another hundredth is added, as `twinbus ledger run --follow` meets it
- runs:        `--runs N`: N runs of 1,000 new records each in one session, on tables of their own

Prints wall time and CPU of the process and its children, without and with the start of the session. Targets: full takes
at most 2 times as long as plain, incremental at most a tenth of full, without the start. Each record needs about 250
bytes of disk; the files are removed at the end.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from ledger_files import START_MS, generate, write
from measure import machine

LINE_BYTES = 260
DAY_MS = 86_400_000
BARS = {"full / plain": 2.0, "incremental / full": 0.1}
DEFAULT = Path(__file__).parent / "results" / "ledger.json"
_TICKS_S = os.sysconf("SC_CLK_TCK")
_FIELDS = (
    "v bigint, type string, id string, start_ms bigint, end_ms bigint, source string, namespace string, "
    "entity string, kind string, stage string, outcome string, count bigint, bytes bigint, units bigint"
)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=20_000_000)
    parser.add_argument("--folder", type=Path, help="where the files go; default: a temporary folder")
    parser.add_argument("--memory", default="3g", help="Spark's memory")
    parser.add_argument("--rounds", type=int, default=1, help="plain and full in turns; the medians count")
    parser.add_argument("--runs", type=int, default=0, help="measure so many small runs instead of all else")
    parser.add_argument("--json", type=Path, default=DEFAULT, help="where the figures go")
    parser.add_argument("--check", action="store_true", help="fail when a bar is missed")
    parser.add_argument("--work", choices=["plain", "schema", "full", "incremental"], help=argparse.SUPPRESS)
    return parser.parse_args()


def tree_cpu_s(pid: int) -> float:
    """CPU seconds of a process and all its descendants, including ended ones."""
    children: dict[int, list[int]] = {}
    own: dict[int, float] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue  # it ended meanwhile
            children.setdefault(int(fields[1]), []).append(int(entry.name))
            own[int(entry.name)] = sum(map(int, fields[11:15])) / _TICKS_S
    total, todo = 0.0, [pid]
    while todo:
        at = todo.pop()
        total += own.get(at, 0.0)
        todo += children.get(at, [])
    return total


def work(options: argparse.Namespace) -> None:
    """Run one of the cases and print its figures."""
    from twinbus.ledger.prices import Sheet
    from twinbus.spark.ledger.pipeline import is_small, run
    from twinbus.spark.session import spark_session

    begun = time.monotonic()
    ledger, tables = str(options.folder / "ledger"), options.folder / "tables"
    # As `twinbus ledger run` does.
    brisk = options.work == "incremental" and is_small([ledger], tables)
    settings = {"spark.driver.memory": options.memory}
    archived = "ledger" if options.work in ("full", "incremental") else None
    with spark_session("bench", master="local[2]", settings=settings, brisk=brisk, archived=archived) as spark:
        started, started_cpu = time.monotonic(), tree_cpu_s(os.getpid())
        if options.work in ("plain", "schema"):
            reader = spark.read if options.work == "plain" else spark.read.schema(_FIELDS)
            records = sum(row["count"] for row in reader.json(ledger).groupBy("type").count().collect())
        else:
            records = run(spark, [ledger], tables, Sheet.load("standard")).records
        ended, ended_cpu = time.monotonic(), tree_cpu_s(os.getpid())
        following = _following(spark, options, ledger, tables) if options.work == "incremental" else {}
    figures = {
        "archive_s": time.monotonic() - ended if options.work == "full" else 0.0,
        "records": records,
        "wall_s": ended - started,
        "cpu_s": ended_cpu - started_cpu,
        "wall_with_start_s": ended - begun,
        "cpu_with_start_s": ended_cpu,
        **following,
    }
    print(json.dumps(figures))


def _runs(options: argparse.Namespace) -> dict[str, Any]:
    """Many small runs, one after the other: CPU of the first ten and of the last ten, and the number of files left."""
    from twinbus.ledger.prices import Sheet
    from twinbus.spark.ledger.delta import DeltaFolder
    from twinbus.spark.ledger.pipeline import run
    from twinbus.spark.session import spark_session

    ledger, tables = options.folder / "ledger", options.folder / "tables"
    ledger.mkdir()
    used = []
    with spark_session("bench", master="local[2]", settings={"spark.driver.memory": "1g"}) as spark:
        # Ten more runs first: the JVM compiles hot code, and the first runs pay for it.
        for number in range(options.runs + 10):
            write(ledger, "contoso", f"{number + 1:016x}", START_MS + number * 25_000, 1_000)
            begun = tree_cpu_s(os.getpid())
            assert run(spark, [ledger], tables, Sheet.load("standard")).records == 1_000
            used.append(tree_cpu_s(os.getpid()) - begun)
    first, last = used[10:20], used[-10:]
    files = {name: len(DeltaFolder(tables).files(name)) for name in ("operations", "charges", "days", "files", "seen")}
    return {"runs": options.runs, "first_cpu_s": sum(first) / 10, "last_cpu_s": sum(last) / 10, "files": files}


def _following(spark: Any, options: argparse.Namespace, ledger: str, tables: Path) -> dict[str, float]:
    """A second small run in a warm session: nothing is loaded or compiled for the first time."""
    from twinbus.ledger.prices import Sheet
    from twinbus.spark.ledger.pipeline import run

    generate(Path(ledger), options.records // 100, START_MS + 11 * DAY_MS, "c")
    begun, begun_cpu = time.monotonic(), tree_cpu_s(os.getpid())
    assert run(spark, [ledger], tables, Sheet.load("standard")).records == options.records // 100
    return {"following_wall_s": time.monotonic() - begun, "following_cpu_s": tree_cpu_s(os.getpid()) - begun_cpu}


def measured(options: argparse.Namespace, name: str, label: str | None = None, **given: str) -> dict[str, Any]:
    """Run one case in its own process; the archive is kept with the other files."""
    environment = {**os.environ, "XDG_CACHE_HOME": str(options.folder / "cache"), **given}
    command = [sys.executable, __file__, "--work", name, "--folder", str(options.folder), "--memory", options.memory]
    command += ["--records", str(options.records)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{name} failed:\n{done.stdout}{done.stderr}")
    figures: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    print(
        f"{label or name:12} {figures['records']:12,} records  {figures['wall_s']:8.1f} s  "
        f"CPU {figures['cpu_s']:8.1f} s"
        f"   with the session's start {figures['wall_with_start_s']:8.1f} s  CPU {figures['cpu_with_start_s']:8.1f} s",
        flush=True,
    )
    return figures


def median(rows: list[dict[str, Any]], name: str) -> float:
    return sorted(float(row[name]) for row in rows)[len(rows) // 2]


def measure(options: argparse.Namespace) -> dict[str, Any]:
    ledger = options.folder / "ledger"
    need = options.records * LINE_BYTES * 11 // 10
    free = shutil.disk_usage(options.folder).free
    if free < need:
        raise SystemExit(f"{need:,} bytes are needed in {options.folder}, {free:,} are free: give another --folder.")
    begun = time.monotonic()
    generate(ledger, options.records)
    files = list(ledger.iterdir())
    size = sum(path.stat().st_size for path in files)
    print(f"{options.records:,} records in {len(files):,} files, {size:,} bytes: {time.monotonic() - begun:.0f} s")
    found: dict[str, list[dict[str, Any]]] = {"plain": [], "full": []}
    for _ in range(options.rounds):
        shutil.rmtree(options.folder / "tables", ignore_errors=True)
        for name, rows in found.items():
            rows.append(measured(options, name))
    found["schema"] = [measured(options, "schema")]
    # The new files cover a later time in the same month, whose charges are computed again.
    generate(ledger, options.records // 100, START_MS + 10 * DAY_MS, "b")
    tables, kept = options.folder / "tables", options.folder / "tables-after-full"
    shutil.copytree(tables, kept)
    found["no archive"] = [measured(options, "incremental", "no archive", TWINBUS_ARCHIVE="off")]
    shutil.rmtree(tables)
    kept.rename(tables)
    for path in ledger.glob("*-?00000000000000c-*"):
        path.unlink()  # what `following` added
    found["incremental"] = [measured(options, "incremental")]
    assert found["full"][-1]["records"] == options.records
    assert found["incremental"][-1]["records"] == options.records // 100
    ratios = {
        f"{a} / {b}": {what: median(found[a], what) / median(found[b], what) for what in ("wall_s", "cpu_s")}
        for a, b in (("full", "plain"), ("full", "schema"), ("incremental", "full"), ("no archive", "full"))
    }
    small = found["incremental"][-1]
    ratios["following / full"] = {
        what: small[f"following_{what}"] / median(found["full"], what) for what in ("wall_s", "cpu_s")
    }
    return {"records": options.records, "files": len(files), "bytes": size, "runs": found, "ratios": ratios}


def main() -> int:
    options = arguments()
    if options.work:
        work(options)
        return 0
    where = machine()
    given = options.folder
    options.folder = Path(tempfile.mkdtemp(prefix="ledger-", dir=given))
    try:
        if options.runs:
            print(json.dumps(_runs(options), indent=1))
            return 0
        result = measure(options)
    finally:
        shutil.rmtree(options.folder, ignore_errors=True)
    missed = [name for name, bar in BARS.items() if result["ratios"][name]["wall_s"] > bar]
    for name, ratio in result["ratios"].items():
        bar = f" (at most {BARS[name]}: {'MISSED' if name in missed else 'met'})" if name in BARS else ""
        print(f"{name:20} {ratio['wall_s']:6.3f} by time, {ratio['cpu_s']:6.3f} by CPU{bar}")
    options.json.parent.mkdir(parents=True, exist_ok=True)
    taken = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    report = {"taken": taken, "machine": where, "memory": options.memory, "bars": BARS, **result}
    options.json.write_text(json.dumps(report, indent=1) + "\n")
    print(f"Written: {options.json}")
    return 1 if options.check and missed else 0


if __name__ == "__main__":
    sys.exit(main())
