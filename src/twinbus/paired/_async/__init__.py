"""The source of both variants of the paired client: `scripts/unasync.py` generates `_sync` from it."""
