"""The path that a token, an audience or a policy refers to.

Rules:
- Only the path matters: scheme, host, port and query are dropped, because clients write them in many ways.
- Paths are lower case, without leading, trailing or doubled slashes; `''` is the whole namespace.
- A scope covers a path if it is a prefix of it on a segment boundary: `a` covers `a/b`, but not `ab`.
"""

from __future__ import annotations

from urllib.parse import unquote


def path_of(resource: str) -> str:
    """Return the path of `sb://host:port/Path`, `https://host/path?query`, `host:port/path` or `host`.

    Without a scheme, the first segment is the host only if it looks like one: it contains a dot or a colon, or is
    `localhost`. Otherwise it stays part of the path, so a wrong guess narrows a token and never widens it.
    """
    scheme, separator, rest = resource.partition("://")
    if not separator:
        rest = scheme
    rest = rest.partition("?")[0].partition("#")[0]
    authority, _, path = rest.partition("/")
    if not separator and not _looks_like_host(authority):
        path = rest
    return normalised(unquote(path))


def normalised(path: str) -> str:
    """Convert to lower case and remove leading, trailing and doubled slashes."""
    return "/".join(part for part in path.lower().split("/") if part)


def covers(scope: str, path: str) -> bool:
    """Whether normalised `scope` covers normalised `path`."""
    return not scope or path == scope or path.startswith(scope + "/")


def _looks_like_host(segment: str) -> bool:
    return "." in segment or ":" in segment or segment.lower() == "localhost"
