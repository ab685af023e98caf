"""Checks whether a destination detects duplicates, with the administration API, once per worker process.

- A key without Manage cannot ask; then the result is unknown, and a warning says so.
- The option `duplicateDetection` decides: warn, require or ignore.
"""

from __future__ import annotations

import logging
from typing import Final

from twinbus.errors import ConfigError, ServiceError
from twinbus.spark.source.options import Detection, Options

_logger = logging.getLogger(__name__)

# Entities that this process has checked, by namespace and path; None if unknown.
_KNOWN: Final[dict[tuple[str, str], bool | None]] = {}


def check_duplicates(options: Options, entity: str, *, loud: bool = True) -> None:
    """Warn or raise if the destination keeps duplicates, as the options say; only a `loud` caller warns."""
    if options.detection is Detection.IGNORE:
        return
    key = (options.access.namespace, entity)
    fresh = key not in _KNOWN
    if fresh:
        _KNOWN[key] = _detects(options, entity)
    detects = _KNOWN[key]
    if detects:
        return
    if detects is None:
        text = (
            f"Cannot check whether {entity!r} detects duplicates: the key lacks the Manage right, or the worker lacks "
            "`defusedxml`."
        )
    else:
        text = f"{entity!r} does not detect duplicates: a batch that is written again appears twice."
    if options.detection is Detection.REQUIRE:
        raise ConfigError(
            f"{text} Create it with duplicate detection (it cannot be enabled later), or set duplicateDetection "
            "to warn or ignore."
        )
    if fresh and loud:
        _logger.warning("%s", text)


def _detects(options: Options, entity: str) -> bool | None:
    if options.access.secret is None:
        return None
    try:
        # Imported here, because a worker that has the package from --py-files lacks its dependencies.
        from twinbus.client.description import describe

        found = describe(options.access.secret, entity, ca_file=options.access.ca_file)
    except (ServiceError, ImportError) as error:
        _logger.info("The administration API could not describe %r: %s", entity, error)
        return None
    return found.get("RequiresDuplicateDetection") == "true"
