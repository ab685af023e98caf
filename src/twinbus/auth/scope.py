"""The path a token, an audience or a policy speaks about.

Rules:
- Only the path counts: scheme, host, port and query are dropped, because clients write them in every possible way.
- Paths are lower case, without outer or doubled slashes; `''` is the whole namespace.
- A scope covers a path when it is a prefix of it on a segment boundary: `a` covers `a/b`, never `ab`.
"""

from __future__ import annotations

from urllib.parse import unquote


def path_of(resource: str) -> str:
    """The path in `sb://host:port/Path`, `https://host/path?query`, `host:port/path` or `host`.

    Without a scheme the first segment is the host only if it looks like one (it has a dot or a colon, or is
    `localhost`). Anything else stays part of the path: a wrong guess then narrows a token and never widens it.
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
    """Lower case, single slashes, none at the ends."""
    return "/".join(part for part in path.lower().split("/") if part)


def covers(scope: str, path: str) -> bool:
    """Whether normalised `scope` covers normalised `path`."""
    return not scope or path == scope or path.startswith(scope + "/")


def _looks_like_host(segment: str) -> bool:
    return "." in segment or ":" in segment or segment.lower() == "localhost"
