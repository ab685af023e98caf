"""Dagster: the syphon's ledger, the ledger's tables and the report as assets that depend on each other.

    dagster dev -f examples/orchestration/dagster_assets.py

Twinbus and Spark may have an environment of their own: TWINBUS is its `twinbus` command, TWINBUS_FOLDER has primary.txt
and secondary.txt (connection strings), and gets `ledger`, `tables` and the page. An asset that is made again moves no
message twice and counts no record twice.
"""

import json
import os
import subprocess
from pathlib import Path

from dagster import AssetExecutionContext, AssetSelection, Definitions, MaterializeResult, ScheduleDefinition, asset

FOLDER = Path(os.environ.get("TWINBUS_FOLDER", "."))


def twinbus(context: AssetExecutionContext, *arguments: str) -> dict:
    """Run a command in the folder; the JSON that it prints, the last of it if there is more."""
    command = [os.environ.get("TWINBUS", "twinbus"), *arguments, "--json"]
    done = subprocess.run(command, cwd=FOLDER, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(done.stderr.strip())
    context.log.info(done.stderr.strip())
    lines = done.stdout.splitlines()
    last = max(number for number, line in enumerate(lines) if line.startswith("{"))
    return json.loads("\n".join(lines[last:]))


@asset(description="The ledger of a syphon that has emptied the backlog.")
def syphon_ledger(context: AssetExecutionContext) -> MaterializeResult:
    name = os.environ.get("TWINBUS_PRIMARY_NAME", "contoso")
    files = ("--primary-file", "primary.txt", "--secondary-file", "secondary.txt", "--primary-name", name)
    found = twinbus(context, "syphon", *files, "--once", "--ledger", "ledger")
    return MaterializeResult(metadata={"syphoned": found["syphoned"], "dead_lettered": found["dead_lettered"]})


@asset(deps=[syphon_ledger], description="Delta tables of operations, charges, failovers, backlog and latency.")
def ledger_tables(context: AssetExecutionContext) -> MaterializeResult:
    found = twinbus(context, "ledger", "run", "--ledger", "ledger", "--tables", "tables")
    return MaterializeResult(metadata={"records": found["records"], "quarantined": found["quarantined"]})


@asset(deps=[ledger_tables], description="The page with charts: what was done and what it cost.")
def cost_report(context: AssetExecutionContext) -> MaterializeResult:
    found = twinbus(context, "report", "--tables", "tables", "--output", "report.html")
    return MaterializeResult(metadata={"sentence": found["sentence"], "page": str(FOLDER / "report.html")})


defs = Definitions(
    assets=[syphon_ledger, ledger_tables, cost_report],
    schedules=[ScheduleDefinition(name="daily", target=AssetSelection.all(), cron_schedule="0 3 * * *")],
)
