"""The table of docs/clients.md, from the last recorded run of the programs.

`make matrix` runs the programs and writes both: matrix.json, and the table from it. `python tests/compat/matrix.py`
writes the table alone. A test says when the page and the record differ.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
RECORD = HERE / "matrix.json"
PAGE = HERE.parents[1] / "docs" / "clients.md"
MARK = "<!-- matrix -->"
END = "<!-- /matrix -->"

ORDER = ("python", "node", "java", "go", "dotnet", "jms", "rust")
ROWS = {
    "send": "send and receive, properties, time to live",
    "batch": "100 messages in one batch, or in flight at once",
    "settle": "complete, abandon, dead-letter; defer (not JMS)",
    "receive-and-delete": "receive and delete",
    "peek": "peek",
    "renew": "renew a lock",
    "sessions": "sessions; session state (not Rust)",
    "schedule": "schedule; cancel (not JMS, Rust)",
    "topics": "topics, a rule with an action",
    "transactions": "transactions",
    "administration": "create, update, list, delete queues",
    "websocket": "AMQP over WebSocket",
    "large": "a message of 5 MiB",
    "wrong-key": "a wrong key is refused as such",
    "missing-entity": "a missing entity is refused as such",
    "kill": "3 kills under load: nothing lost, it recovers",
}


def table(matrix: dict[str, Any]) -> str:
    names = [name for name in ORDER if name in matrix]
    heads = [matrix[name]["client"] for name in names]
    lines = [f"| | {' | '.join(heads)} |", f"|---|{'---|' * len(names)}"]
    notes: list[str] = []
    for case, title in ROWS.items():
        cells = []
        for name in names:
            reason = matrix[name]["lacks"].get(case)
            if reason is None:
                cells.append("yes" if matrix[name]["cases"].get(case) else "**no**")
            else:
                if reason not in notes:
                    notes.append(reason)
                cells.append(f"({notes.index(reason) + 1})")
        lines.append(f"| {title} | {' | '.join(cells)} |")
    lines.append("")
    lines += [f"({number}) {note}.  " for number, note in enumerate(notes, 1)]
    return "\n".join(lines).rstrip()


def with_table(page: str, matrix: dict[str, Any]) -> str:
    before, _, rest = page.partition(MARK)
    _, _, after = rest.partition(END)
    return f"{before}{MARK}\n\n{table(matrix)}\n\n{END}{after}"


if __name__ == "__main__":
    PAGE.write_text(with_table(PAGE.read_text(), json.loads(RECORD.read_text())))
