"""Writes docs/states.md from the tables of the code: `python -m tests.docs.states_page`."""

from __future__ import annotations

from tests.docs.pages import ROOT
from twinbus.amqp import phases
from twinbus.entities.states import MEANINGS, TRANSITIONS

PAGE = ROOT / "docs" / "states.md"

Names = dict[str, str]
Moves = dict[str, dict[str, str]]

INTRODUCTION = """\
# States

Where messages, links and sessions can be, and what moves them. The page is made from the tables that the code and its
tests go by: `entities/states.py` for messages, `amqp/phases.py` for links and sessions. Run
`python -m tests.docs.states_page` to write it again.
"""

MESSAGES = """\
A message is in exactly one place of its entity, or has left it. A place whose change is not durable yet moves on with
the commit. Dead-lettered, forwarded, resubmitted and handed-out messages are *sent* in the entity they went to. Locks
are not stored: after a restart a locked, taken or returning message is available again, or deferred. Deleting an entity
removes its messages from every place.
"""

SESSIONS = "The life of an AMQP session, seen from one side. The engine looks each change up in this table."

LINKS = "The life of an AMQP link, seen from one side. The engine looks each change up in this table."


def section(title: str, text: str, names: Names, moves: Moves, starts: list[str]) -> str:
    ids = {name: name.replace(", ", "_").replace(" ", "_").replace("-", "_") for name in names}
    lines = [f"## {title}", "", text.rstrip(), "", "```mermaid", "stateDiagram-v2"]
    lines += [f'    state "{name}" as {ids[name]}' for name in names if ids[name] != name]
    lines += [f"    [*] --> {ids[name]}" for name in starts]
    for source, row in moves.items():
        for target in dict.fromkeys(row.values()):
            causes = [cause for cause, end in row.items() if end == target]
            lines.append(f"    {ids[source]} --> {ids[target]}: {' / '.join(causes)}")
    lines += ["```", "", "| in | it is |", "|---|---|"]
    lines += [f"| {name} | {meaning} |" for name, meaning in names.items()]
    lines += ["", "| from | by | to |", "|---|---|---|"]
    lines += [f"| {source} | {cause} | {target} |" for source, row in moves.items() for cause, target in row.items()]
    return "\n".join(lines) + "\n"


def page() -> str:
    messages = section(
        "Messages",
        MESSAGES,
        {place.value: meaning for place, meaning in MEANINGS.items()},
        {place.value: {move.value: target.value for move, target in row.items()} for place, row in TRANSITIONS.items()},
        ["sent", "scheduling"],
    )
    links = section("Links", LINKS, *_named(phases.LINK_PHASES, phases.LINK_TRANSITIONS), ["attaching"])
    sessions = section("Sessions", SESSIONS, *_named(phases.SESSION_PHASES, phases.SESSION_TRANSITIONS), ["beginning"])
    return "\n".join([INTRODUCTION, messages, links, sessions])


def _named(names: dict[int, tuple[str, str]], table: dict[int, dict[str, int]]) -> tuple[Names, Moves]:
    return dict(names.values()), {
        names[phase][0]: {event: names[target][0] for event, target in row.items()} for phase, row in table.items()
    }


if __name__ == "__main__":
    PAGE.write_text(page())
