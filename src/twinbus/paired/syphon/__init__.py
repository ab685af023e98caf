"""The syphon: moves diverted messages from the backlog queues of the secondary to the primary."""

from twinbus.paired.syphon.bounds import Bounds
from twinbus.paired.syphon.decisions import Decision, Fate, decide
from twinbus.paired.syphon.drain import DrainResult, Pairing, SyphonRun, drain
from twinbus.paired.syphon.syphon import Syphon, SyphonReport

__all__ = [
    "Bounds",
    "Decision",
    "DrainResult",
    "Fate",
    "Pairing",
    "Syphon",
    "SyphonReport",
    "SyphonRun",
    "decide",
    "drain",
]
