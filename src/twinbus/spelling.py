"""Suggest the name that a misspelled one probably meant."""

from __future__ import annotations

from collections.abc import Iterable


def nearest(name: str, known: Iterable[str], likeness: float = 0.6) -> str | None:
    """Return the most similar known name, ignoring case, or None. `likeness` is from 0 to 1."""
    # Imported here, because only a mistake needs it.
    import difflib

    by_folded = {each.lower(): each for each in known}
    near = difflib.get_close_matches(name.lower(), by_folded, 1, likeness)
    return by_folded[near[0]] if near else None


def did_you_mean(name: str, known: Iterable[str], otherwise: str = "") -> str:
    """Return a question to append to an error, or `otherwise` if no name is similar; either starts with a space."""
    near = nearest(name, known, 0.5)
    if near is not None:
        return f" Did you mean {near!r}?"
    return f" {otherwise}" if otherwise else ""
