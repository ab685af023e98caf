"""The name that a misspelled one probably meant."""

from __future__ import annotations

from collections.abc import Iterable


def nearest(name: str, known: Iterable[str], likeness: float = 0.6) -> str | None:
    """The known name most like it, whatever the case; None when none is. `likeness` is from 0 to 1."""
    # Only a mistake pays for the import.
    import difflib

    by_folded = {each.lower(): each for each in known}
    near = difflib.get_close_matches(name.lower(), by_folded, 1, likeness)
    return by_folded[near[0]] if near else None


def did_you_mean(name: str, known: Iterable[str], otherwise: str = "") -> str:
    """A question to put behind an error, or `otherwise` when no name is like it; a space before either."""
    near = nearest(name, known, 0.5)
    if near is not None:
        return f" Did you mean {near!r}?"
    return f" {otherwise}" if otherwise else ""
