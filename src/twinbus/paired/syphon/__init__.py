"""The syphon: brings diverted messages home, from the backlog queues of the secondary to the primary."""

from twinbus.paired.syphon.decisions import Decision, Fate, decide
from twinbus.paired.syphon.syphon import Report, Syphon

__all__ = ["Decision", "Fate", "Report", "Syphon", "decide"]
