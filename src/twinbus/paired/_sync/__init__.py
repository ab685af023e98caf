"""The sync twin of `_async`, written by `scripts/unasync.py`."""
