"""The source of both colours of the paired client: `scripts/unasync.py` writes `_sync` from it."""
