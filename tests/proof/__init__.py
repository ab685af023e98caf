"""The proof suites: each tries many cases from a seed, and is red when a bug is planted."""

from tests.proof.suite import Suite

__all__ = ["SUITES"]


def _suites() -> dict[str, Suite]:
    from tests.proof import crash, elf, web

    found = {"http": web.SUITE}
    if elf.SUPPORTED:
        found["crash"] = crash.SUITE
    return found


SUITES = _suites()
