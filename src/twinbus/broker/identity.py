"""The identity of a namespace: which one it is, whatever its name and its address.

- It is random, made with the data folder, and on disk before anybody is told.
- A backup has it, so a restored namespace is the same one. A new folder is another namespace.
"""

from __future__ import annotations

import logging
from typing import Final
from uuid import uuid4

from twinbus.store.facts import Facts, Table
from twinbus.store.lmdb_store import Store

logger = logging.getLogger(__name__)

_KEY: Final = b"identity"
_CHARS: Final = 32


def namespace_identity(store: Store) -> str:
    """The identity in this store; makes one if it has none."""
    stored = store.get(Table.META, _KEY)
    if stored is not None and len(stored) == _CHARS and stored.isalnum():
        return stored.decode("ascii")
    if stored is not None:
        logger.error(
            "the identity of the namespace in %s is damaged, and a new one was made: backlog queues with the old one "
            "wait until `twinbus backlog adopt` says whose they are",
            store.folder,
        )
    made = uuid4().hex
    facts = Facts()
    facts.rows[Table.META, _KEY] = made.encode("ascii")
    store.commit(facts)
    return made
