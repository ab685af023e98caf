"""The proof suites: each tries many cases from a seed, and fails when a bug is planted."""

from tests.proof.suite import Suite

__all__ = ["SUITES"]


def _suites() -> dict[str, Suite]:
    from tests.proof import (
        churn,
        crash,
        damage,
        decoders,
        elf,
        full_disk,
        fuzzing,
        orders,
        paces,
        peeks,
        prefixes,
        simulation,
        soak,
        web,
    )

    found = {"http": web.SUITE, "order": orders.SUITE, "churn": churn.SUITE, "pace": paces.SUITE, "soak": soak.SUITE}
    if elf.SUPPORTED:
        found["crash"] = crash.SUITE
    return found | {
        "damage": damage.SUITE,
        "full-disk": full_disk.SUITE,
        "simulation": simulation.SUITE,
        "models": simulation.MODELS,
        "transactions": simulation.TRANSACTIONS,
        "prefixes": prefixes.SUITE,
        "peeks": peeks.SUITE,
        "decoders": decoders.SUITE,
        **({"fuzzing": fuzzing.SUITE} if fuzzing.SUPPORTED else {}),
    }


SUITES = _suites()
