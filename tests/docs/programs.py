"""The programs of the pages: which are whole, and which are fragments that lean on names told elsewhere."""

from __future__ import annotations

import ast
import builtins
import importlib
import symtable

# What a page may leave unsaid: the connection strings that its text speaks of.
KNOWN = {
    "connection_string": "TWINBUS_CONNECTION_STRING",
    "primary": "TWINBUS_PRIMARY",
    "secondary": "TWINBUS_SECONDARY",
}
# The session that a Spark shell or notebook has.
SESSION = "spark"


def missing(source: str) -> set[str]:
    """Names that a program uses and nobody gives it."""
    used = _globals(symtable.symtable(source, "page", "exec"))
    return {name for name in used - bound(source) if not hasattr(builtins, name)} - {"__file__"}


def bound(source: str) -> set[str]:
    """Names that a program gives to something, at its top level."""
    table = symtable.symtable(source, "page", "exec")
    found = {symbol.get_name() for symbol in table.get_symbols() if symbol.is_assigned() or symbol.is_imported()}
    return found | {child.get_name() for child in table.get_children() if child.get_type() in ("function", "class")}


def _globals(table: symtable.SymbolTable) -> set[str]:
    top = table.get_type() == "module"
    found = {
        symbol.get_name() for symbol in table.get_symbols() if symbol.is_referenced() and (top or symbol.is_global())
    }
    for child in table.get_children():
        found |= _globals(child)
    return found - set(dir(builtins))


def is_whole(source: str) -> bool:
    """Whether it can be run as it stands, with no more than the connection strings given."""
    return not missing(source) - set(KNOWN)


def notebook(sources: list[str]) -> list[str]:
    """Those of a page's programs that need a Spark session, or what an earlier one of them has made."""
    found: list[str] = []
    made: set[str] = set()
    for source in sources:
        lacks = missing(source) - set(KNOWN)
        if lacks and lacks <= made | {SESSION}:
            found.append(source)
            made |= bound(source)
    return found


def completed(source: str) -> str:
    """A whole program with the names it leaves unsaid. A `from __future__` import would have to stay first."""
    given = sorted(missing(source) & set(KNOWN))
    head = [f"{name} = __import__('os').environ['{KNOWN[name]}']" for name in given]
    return "\n".join([*head, source])


def unknown_imports(source: str) -> list[str]:
    """What a program imports that does not exist."""
    wrong = []
    for node in ast.walk(ast.parse(source)):
        names = []
        if isinstance(node, ast.Import):
            names = [(alias.name, None) for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names = [(node.module, alias.name) for alias in node.names]
        for module, name in names:
            try:
                found = importlib.import_module(module)
                if name is not None and not hasattr(found, name):
                    importlib.import_module(f"{module}.{name}")
            except ImportError as error:
                wrong.append(f"line {node.lineno}: {error}")
    return wrong
