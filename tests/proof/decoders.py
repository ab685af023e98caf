"""Random changes to bytes and texts that clients write, given to each decoder.

Promise: a decoder returns a value or raises one of our errors, and nothing else. `fuzzing.py` does the same guided by
coverage where atheris is installed.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager

from tests.fuzz.decoders import DECODERS
from tests.proof.suite import Budget, Suite
from twinbus.errors import TwinbusError


def changed(data: bytes, chance: random.Random) -> bytes:
    found = bytearray(data)
    for _ in range(chance.randrange(1, 6)):
        at = chance.randrange(len(found) + 1)
        what = chance.randrange(5)
        if what == 0 and at < len(found):
            found[at] ^= 1 << chance.randrange(8)
        elif what == 1:
            found[at : at + 1] = chance.randbytes(1)
        elif what == 2:
            del found[at : at + chance.randrange(8)]
        elif what == 3:
            found[at:at] = found[at : at + chance.randrange(30)] * chance.randrange(1, 4)
        else:
            found[at:at] = chance.choice([b"\xff" * 4, b"\0", b"9" * 20, b"((", b'"', b"\xc0\x02\x01", b"\xf0", b"&x;"])
    return bytes(found)


def run(budget: Budget) -> str:
    """Give changed bytes to the decoders in turn: a value or one of our errors, nothing else."""
    names = list(DECODERS)
    refused = 0
    for chance in budget:
        name = names[budget.tried % len(names)]
        work, corpus, allowed = DECODERS[name]
        data = changed(chance.choice(corpus), chance)
        try:
            work(data)
        except (TwinbusError, *allowed):
            refused += 1
        except Exception as error:
            raise AssertionError(f"{name} raised {error!r} for {data.hex()}") from error
    return f"{budget.tried:,} inputs to {len(names)} decoders, {refused:,} refused, no other error"


@contextmanager
def planted() -> Iterator[None]:
    """A decoder forgets to check the end of its input."""
    sound = DECODERS["value"]
    DECODERS["value"] = (lambda data: data[data[0]], sound[1], ())
    try:
        yield
    finally:
        DECODERS["value"] = sound


SUITE = Suite("inputs", 20_000, 10_000_000, run, planted)
