"""Apache Airflow: once a day bring diverted messages home, add the ledger to its tables, and write the report.

Copy it into Airflow's folder of DAGs. Twinbus and Spark stay in an environment of their own: TWINBUS is its `twinbus`
command, TWINBUS_FOLDER has primary.txt and secondary.txt (connection strings), and gets `ledger`, `tables` and the
page. A task that fails is run again: a message is moved once, a record is counted once.
"""

from datetime import UTC, datetime, timedelta

from airflow.providers.standard.operators.bash import BashOperator
from airflow.sdk import DAG

SYPHON = """
$TWINBUS syphon --primary-file primary.txt --secondary-file secondary.txt \
    --primary-name ${TWINBUS_PRIMARY_NAME:-contoso} --once --quiet --ledger ledger
"""
LEDGER = "$TWINBUS ledger run --ledger ledger --tables tables"
REPORT = "$TWINBUS report --tables tables --output report-{{ dag_run.run_after | ds_nodash }}.html"


def step(name: str, command: str) -> BashOperator:
    """A task that runs a command in the folder; the last line of output is its result (XCom)."""
    return BashOperator(
        task_id=name,
        bash_command=f'cd "$TWINBUS_FOLDER" && {command.strip()}',
        append_env=True,
        retries=2,
        retry_delay=timedelta(minutes=1),
    )


with DAG(
    "twinbus",
    schedule="@daily",
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    catchup=False,
    # One run at a time has the tables; a second would be refused.
    max_active_runs=1,
) as dag:
    step("syphon", SYPHON) >> step("ledger", LEDGER) >> step("report", REPORT)
