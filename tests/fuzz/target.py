"""One run of atheris: `python -m tests.fuzz.target NAME [options of libFuzzer] FOLDER`, for the suite `fuzzing`.

NAME is one of the decoders, or `all`: then the first byte of an input chooses the decoder. The folder takes the inputs
that reached something new, and has the first ones.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

ALL = "all"
# Set in the environment: a decoder forgets to look at the end of its input.
PLANTED = "TWINBUS_PLANTED"


def main() -> None:
    import atheris

    # Nothing of ours may be imported before: only what is imported here is watched.
    with atheris.instrument_imports(include=["twinbus"]):
        from tests.fuzz.decoders import DECODERS
        from twinbus.errors import TwinbusError

    name, options, folder = sys.argv[1], sys.argv[2:-1], Path(sys.argv[-1])
    if os.environ.get(PLANTED):
        DECODERS["value"] = (lambda data: data[data[0]], DECODERS["value"][1], ())
    wanted = list(DECODERS.values()) if name == ALL else [DECODERS[name]]
    for at, (_, seeds, _) in enumerate(wanted):
        for number, seed in enumerate(seeds):
            (folder / f"{at}-{number}").write_bytes(bytes([at]) + seed if name == ALL else seed)

    def one_input(data: bytes) -> None:
        at = 0
        if name == ALL:
            at, data = data[0] % len(wanted) if data else 0, data[1:]
        work, _, allowed = wanted[at]
        try:
            work(data)
        except (TwinbusError, *allowed):
            return

    atheris.Setup([sys.argv[0], *options, str(folder)], one_input)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
