"""The syphon: brings diverted messages home, from the backlog queues of the secondary to the primary."""

from twinbus.paired.syphon.bounds import Bounds
from twinbus.paired.syphon.decisions import Decision, Fate, decide
from twinbus.paired.syphon.errand import Drained, Errand, Pairing, drain
from twinbus.paired.syphon.syphon import Report, Syphon

__all__ = ["Bounds", "Decision", "Drained", "Errand", "Fate", "Pairing", "Report", "Syphon", "decide", "drain"]
