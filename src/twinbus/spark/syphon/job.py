"""The syphon as a job for `spark-submit`.

    spark-submit --master spark://HOST:7077 .../twinbus/spark/syphon/job.py --primary-file p.txt --secondary-file s.txt

- Connection strings come from files or the environment, never from arguments, which Spark's UI and `ps` show.
- Only the driver reads the files, including the CA's; tasks get what they need inside the function that Spark ships.
- Exit codes are those of `twinbus syphon`.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from twinbus.errors import ConfigError, TwinbusError
from twinbus.limits import (
    BACKLOG_QUEUES_DEFAULT,
    CONFIG_FILE_BYTES_MAX,
    SYPHON_ROUND_S,
    SYPHON_ROUND_S_MAX,
    SYPHON_SLOTS_MAX,
)
from twinbus.paired.syphon.drain import Pairing, name_of
from twinbus.paired.syphon.syphon import PATIENCE_S, SyphonReport, counts_of
from twinbus.spark.session import spark_session
from twinbus.spark.syphon.rounds import Rounds


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        description="Bring messages home from the backlog queues of the secondary.",
        # `--primary TEXT` must not be taken as a file name.
        allow_abbrev=False,
    )
    made.add_argument("--primary-file", type=Path, help="the primary's connection string; else TWINBUS_PRIMARY")
    made.add_argument("--secondary-file", type=Path, help="the secondary's; else TWINBUS_SECONDARY")
    made.add_argument("--primary-name", help="as in the names of the backlog queues; else the namespace's own")
    made.add_argument("--backlog-queue-count", type=int, default=BACKLOG_QUEUES_DEFAULT)
    made.add_argument("--once", action="store_true", help="end when the backlog is empty")
    made.add_argument("--patience", type=float, default=PATIENCE_S, help="with --once: give up after so long")
    made.add_argument("--slots", type=int, default=1, help="tasks on one backlog queue at once")
    made.add_argument("--round-seconds", type=float, default=SYPHON_ROUND_S)
    made.add_argument("--ledger", help="a folder that every executor can write, for records of operations")
    made.add_argument("--ca-file", type=Path, help="the CA to trust; read by the driver only")
    made.add_argument("--websocket", action="store_true")
    made.add_argument("--json", action="store_true", help="lines of JSON")
    return made


def options_of(arguments: Sequence[str]) -> argparse.Namespace:
    """Parse the options; a connection string among the arguments is rejected before anything shows it."""
    if any(f"sharedaccess{kind}=" in each.lower() for each in arguments for kind in ("key", "signature")):
        raise ConfigError(
            "A connection string stands among the arguments, which Spark's pages show: put it into a file "
            "(--primary-file, --secondary-file) or the environment."
        )
    return parser().parse_args(arguments)


def secret_of(which: str, file: Path | None, environment: Mapping[str, str]) -> str:
    """The connection string of the primary or the secondary."""
    text = environment.get(f"TWINBUS_{which.upper()}", "")
    if file is not None:
        try:
            with file.open() as opened:
                text = opened.read(CONFIG_FILE_BYTES_MAX)
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"The file of the {which}'s connection string cannot be read: {error}.") from None
    if not text.strip():
        raise ConfigError(f"No {which} given: pass --{which}-file FILE, or set TWINBUS_{which.upper()}.")
    return text.strip()


def check_round(slots: int, round_seconds: float) -> None:
    """Raise ConfigError for invalid bounds of a round."""
    if not 1 <= slots <= SYPHON_SLOTS_MAX:
        raise ConfigError(f"--slots is {slots}: it must be from 1 to {SYPHON_SLOTS_MAX}.")
    if not 1 <= round_seconds <= SYPHON_ROUND_S_MAX:
        raise ConfigError(f"--round-seconds is {round_seconds:g}: it must be from 1 to {SYPHON_ROUND_S_MAX:g}.")


def exit_code(report: SyphonReport, once: bool) -> int:
    """1 if something is left, perhaps under another name, or there is no backlog queue at all."""
    return int((once and not report.complete) or not report.found_queues)


def pairing_of(options: argparse.Namespace, environment: Mapping[str, str]) -> Pairing:
    primary = secret_of("primary", options.primary_file, environment)
    secondary = secret_of("secondary", options.secondary_file, environment)
    try:
        return Pairing(
            primary,
            secondary,
            options.primary_name or "",
            ca=None if options.ca_file is None else options.ca_file.read_text(),
            websocket=options.websocket,
            ledger=options.ledger,
            secondary_name="" if options.ledger is None else name_of(secondary, options.ca_file),
        )
    except ValueError as error:
        raise ConfigError(str(error)) from None


def run(arguments: Sequence[str] | None = None) -> int:
    options = options_of(sys.argv[1:] if arguments is None else arguments)
    check_round(options.slots, options.round_seconds)
    pairing = pairing_of(options, os.environ)

    def told(rounds: Rounds) -> None:
        total = rounds.tally.total()
        if options.json:
            found = {"round": rounds.rounds, "syphoned": total.syphoned, "dead_lettered": total.dead_lettered}
            line = json.dumps({**found, "outage": rounds.outage, "failing": rounds.failing})
        else:
            line = f"round {rounds.rounds}: {total.syphoned:,} syphoned, {total.dead_lettered:,} dead-lettered so far"
        sys.stdout.write(line + "\n")
        sys.stdout.flush()

    with spark_session("twinbus syphon", brisk=True) as spark:
        rounds = Rounds(
            spark,
            pairing,
            roster=pairing.roster(options.primary_name, options.backlog_queue_count, options.ca_file),
            slots=options.slots,
            round_s=options.round_seconds,
            counts=counts_of(pairing.secondary, options.ca_file),
            on_round=told,
        )
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: rounds.stop())
        report = rounds.run(once=options.once, patience_s=options.patience)
    if options.json:
        sys.stdout.write(json.dumps(report.as_dict()) + "\n")
    else:
        total = report.total
        left = f"; not empty: {', '.join(report.undrained)}" if options.once and report.undrained else ""
        if report.homeless:
            left += f"; waiting in {', '.join(report.homeless)}, and whose they are is not known"
        syphoned = f"{total.syphoned:,} message{'' if total.syphoned == 1 else 's'} syphoned"
        sys.stdout.write(f"{syphoned}, {total.dead_lettered:,} dead-lettered{left}.\n")
    return exit_code(report, options.once)


def main() -> None:
    try:
        sys.exit(run())
    except (TwinbusError, OSError) as error:
        sys.stderr.write(f"twinbus: {error}\n")
        sys.exit(2 if isinstance(error, ConfigError) else 1)


if __name__ == "__main__":
    main()
