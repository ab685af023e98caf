"""Parses XML from clients: bounded, without entities or document types, by namespace and never by prefix.

Every error is an ArgumentError that names the element. Unknown elements are ignored, as in the service: an update sends
the whole description back, including read-only counts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from xml.etree.ElementTree import ParseError, TreeBuilder

from defusedxml.common import DefusedXmlException
from defusedxml.ElementTree import DefusedXMLParser

from twinbus.broker.http.admin.errors import AdminError
from twinbus.broker.http.admin.xml_out import ATOM, INSTANCE, SERVICE
from twinbus.durations import parse_ms
from twinbus.entities.setting import DURATION, FLAG, NUMBER
from twinbus.errors import ArgumentError, ConfigError
from twinbus.limits import (
    ADMIN_BODY_BYTES_MAX,
    ADMIN_XML_DEPTH_MAX,
    ADMIN_XML_ELEMENTS_MAX,
    ADMIN_XML_NAME_CHARS_MAX,
    ADMIN_XML_PIECE_BYTES_MAX,
)

if TYPE_CHECKING:
    from collections.abc import Iterable
    from xml.etree.ElementTree import Element

    from twinbus.entities.setting import Setting

_TRUE = ("true", "1")
_FALSE = ("false", "0")
_NUMBER_CHARS_MAX = 18
_SHOWN_CHARS = 60


class _BoundedTree(TreeBuilder):
    """A tree with a bounded number of elements: an element takes many times the memory of its tags.

    Names are bounded, too: the parser writes the whole namespace into each of them, so that one long namespace costs as
    much as a long body for each element and attribute."""

    def __init__(self) -> None:
        super().__init__()
        self._depth = 0
        self._count = 0

    def start(self, tag: str, attributes: dict[str, str], /) -> Element:
        self._depth += 1
        self._count += 1 + len(attributes)
        if len(tag) > ADMIN_XML_NAME_CHARS_MAX or any(len(name) > ADMIN_XML_NAME_CHARS_MAX for name in attributes):
            raise ArgumentError(f"The body has a name with more than {ADMIN_XML_NAME_CHARS_MAX} characters.")
        if self._depth > ADMIN_XML_DEPTH_MAX or self._count > ADMIN_XML_ELEMENTS_MAX:
            text = f"more than {ADMIN_XML_ELEMENTS_MAX} elements and attributes, or is nested deeper"
            raise ArgumentError(f"The body has {text} than {ADMIN_XML_DEPTH_MAX}.")
        return super().start(tag, attributes)

    def end(self, tag: str, /) -> Element:
        self._depth -= 1
        return super().end(tag)


def description_in(body: bytes) -> tuple[str, Element]:
    """The kind of the description in an entry (`QueueDescription`, ...) and the description itself."""
    if len(body) > ADMIN_BODY_BYTES_MAX:
        raise AdminError(413, f"The body has {len(body)} bytes; it may have {ADMIN_BODY_BYTES_MAX}.")
    if not body.strip():
        raise ArgumentError("The body is empty; an ATOM entry with a description is needed.")
    # Comments, instructions and attributes cost time, too, and the parser does not report them in time.
    many = body.count(b"<") > 4 * ADMIN_XML_ELEMENTS_MAX
    if many or max(map(len, body.split(b"<"))) > ADMIN_XML_PIECE_BYTES_MAX:
        raise ArgumentError(f"The body has too many tags, or one with more than {ADMIN_XML_PIECE_BYTES_MAX} bytes.")
    try:
        parser = DefusedXMLParser(target=_BoundedTree(), forbid_dtd=True)
        parser.feed(body)
        entry: Element = parser.close()
    except DefusedXmlException:
        raise ArgumentError("The body has a document type or an entity; neither is allowed.") from None
    except (ParseError, ValueError, LookupError) as error:
        raise ArgumentError(f"The body is not XML: {error}.") from None
    content = entry.find(f"{{{ATOM}}}content") if entry.tag == f"{{{ATOM}}}entry" else None
    if content is None:
        raise ArgumentError(f"The body must be an entry with a content, in the namespace {ATOM}.")
    for child in content:
        namespace, _, name = child.tag.rpartition("}")
        if namespace == "{" + SERVICE and name.endswith("Description"):
            return name, child
    raise ArgumentError(f"The entry's content has no description in the namespace {SERVICE}.")


def child_of(parent: Element, name: str) -> Element | None:
    """The child of that name in the service's namespace; a nil child counts as absent."""
    child = parent.find(f"{{{SERVICE}}}{name}")
    if child is None or child.get(f"{{{INSTANCE}}}nil", "").strip() in _TRUE:
        return None
    return child


def child_text(parent: Element, name: str) -> str | None:
    """The text of a child; None if it is absent or empty."""
    child = child_of(parent, name)
    return None if child is None else child.text or None


def type_of(element: Element) -> str:
    """The value of `i:type` without its prefix; '' if absent."""
    return element.get(f"{{{INSTANCE}}}type", "").rpartition(":")[2].strip()


def values_of(parent: Element, settings: Iterable[Setting]) -> dict[str, Any]:
    """The settings in a description, by name and in our units; those it does not mention are omitted."""
    values: dict[str, Any] = {}
    for setting in settings:
        text = child_text(parent, setting.azure)
        if text is not None:
            values[setting.name] = _value(setting, text)
    return values


def _value(setting: Setting, text: str) -> Any:
    if setting.kind == DURATION:
        return _duration(setting.azure, text.strip())
    if setting.kind == NUMBER:
        return number_in(setting.azure, text) * setting.azure_unit
    return flag_in(setting.azure, text) if setting.kind == FLAG else text


def number_in(name: str, text: str) -> int:
    digits = text.strip()
    plain = digits.removeprefix("-")
    if not (plain.isascii() and plain.isdigit() and len(plain) <= _NUMBER_CHARS_MAX):
        raise ArgumentError(f"{name} is {text[:_SHOWN_CHARS]!r}; it must be a whole number.")
    return int(digits)


def flag_in(name: str, text: str) -> bool:
    word = text.strip().lower()
    if word not in _TRUE + _FALSE:
        raise ArgumentError(f"{name} is {text[:_SHOWN_CHARS]!r}; it must be true or false.")
    return word in _TRUE


def _duration(name: str, text: str) -> int:
    try:
        if text.startswith("P"):
            return parse_ms(text)
    except ConfigError:
        pass
    raise ArgumentError(f"{name} is {text[:_SHOWN_CHARS]!r}; it must be an ISO 8601 duration such as PT1M30S.")
