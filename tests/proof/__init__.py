"""The proof suites: each tries many cases from a seed, and is red when a bug is planted."""

from tests.proof.suite import Suite

__all__ = ["SUITES"]


def _suites() -> dict[str, Suite]:
    from tests.proof import web

    return {"http": web.SUITE}


SUITES = _suites()
