"""TLS contexts for clients."""

from __future__ import annotations

import ssl
from pathlib import Path

from twinbus.errors import ConfigError


def tls_context(ca_file: str | Path | None = None, *, verify: bool = True) -> ssl.SSLContext:
    """Create a context that trusts the system's CAs, or only those in `ca_file`; `verify=False` trusts any
    certificate."""
    try:
        context = ssl.create_default_context(cafile=None if ca_file is None else str(ca_file))
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(f"The CA file {ca_file} cannot be used: {error}.") from None
    if not verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context
