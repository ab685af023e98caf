"""docs/states.md shows the tables of the code."""

from __future__ import annotations

from tests.docs.states_page import PAGE, page


def test_the_page_is_made_from_the_tables() -> None:
    assert PAGE.read_text() == page(), "write it anew: python -m tests.docs.states_page"


def test_every_cell_is_drawn_and_listed() -> None:
    text = page()
    assert "    available --> locked: acquire\n" in text
    assert "| available | forward | forwarded |\n" in text
    assert "    attached --> detaching: detach sent\n" in text
    assert "| ending | end received | ended |\n" in text
