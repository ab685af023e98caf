"""XML in and out: what is rejected, escaped and ignored."""

from __future__ import annotations

import gc
import tracemalloc
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.broker.http.admin.desk import body
from twinbus.broker.http.admin.errors import AdminError
from twinbus.broker.http.admin.feed import Entry, Page, Site, entry_text, feed_text
from twinbus.broker.http.admin.xml_in import _BoundedTree, description_in, values_of
from twinbus.broker.http.admin.xml_out import ATOM, SERVICE, element, escaped, moment
from twinbus.entities.setting import QUEUE
from twinbus.entities.settings import SETTINGS_OF
from twinbus.errors import ArgumentError
from twinbus.limits import (
    ADMIN_BODY_BYTES_MAX,
    ADMIN_XML_ELEMENTS_MAX,
    ADMIN_XML_NAME_CHARS_MAX,
    ADMIN_XML_PIECE_BYTES_MAX,
    UNLIMITED_MS,
)


def read(inner: str) -> dict[str, object]:
    kind, description = description_in(body("QueueDescription", inner).encode())
    assert kind == "QueueDescription"
    return values_of(description, SETTINGS_OF[QUEUE])


def test_values() -> None:
    assert read("") == {}
    assert read(
        "<LockDuration>PT1M30S</LockDuration><MaxDeliveryCount> 7 </MaxDeliveryCount><RequiresSession>True"
        "</RequiresSession><UserMetadata> a &amp; b </UserMetadata><SizeInBytes>5</SizeInBytes><Unknown/>"
    ) == {"lock_duration_ms": 90_000, "max_delivery_count": 7, "requires_session": True, "user_metadata": " a & b "}


def test_what_is_nil_or_empty_is_absent() -> None:
    assert read('<LockDuration x:nil="true"/><UserMetadata/><RequiresSession x:nil="1">true</RequiresSession>') == {}


def test_never_comes_back_rounded() -> None:
    """The Python SDK sends the service's longest duration rounded, and slightly shorter."""
    for text in ("P10675199DT2H48M5.4775807S", "P10675199DT2H48M5.477539S", "P10675199DT2H48M5.47758S"):
        assert read(f"<LockDuration>{text}</LockDuration>") == {"lock_duration_ms": UNLIMITED_MS}


@pytest.mark.parametrize(
    ("inner", "words"),
    [
        ("<LockDuration>1 minute</LockDuration>", "LockDuration is '1 minute'"),
        ("<LockDuration>60s</LockDuration>", "ISO 8601"),
        ("<LockDuration>-PT5S</LockDuration>", "ISO 8601"),
        ("<MaxDeliveryCount>many</MaxDeliveryCount>", "MaxDeliveryCount is 'many'"),
        ("<MaxDeliveryCount>1e3</MaxDeliveryCount>", "whole number"),
        (f"<MaxDeliveryCount>{'9' * 40}</MaxDeliveryCount>", "whole number"),
        ("<RequiresSession>yes</RequiresSession>", "true or false"),
    ],
)
def test_bad_values(inner: str, words: str) -> None:
    with pytest.raises(ArgumentError, match=words):
        read(inner)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "empty"),
        ("   ", "empty"),
        ("hello", "not XML"),
        ("<entry>", "not XML"),
        ("<entry/>", "namespace"),
        (f'<entry xmlns="{ATOM}"/>', "content"),
        (f'<feed xmlns="{ATOM}"><content/></feed>', "entry"),
        (f'<entry xmlns="{ATOM}"><content><QueueDescription/></content></entry>', "no description"),
        (f'<entry xmlns="{ATOM}"><content><Queue xmlns="{SERVICE}"/></content></entry>', "no description"),
        ('<!DOCTYPE x [<!ENTITY a "b">]><entry/>', "document type"),
        ("<!DOCTYPE x><entry/>", "document type"),
        ("<?xml version='1.0' encoding='nonsense'?><entry/>", "not XML"),
    ],
)
def test_bad_bodies(text: str, words: str) -> None:
    with pytest.raises(ArgumentError, match=words):
        description_in(text.encode())


def test_bombs_do_not_go_off() -> None:
    bomb = '<!DOCTYPE l [<!ENTITY a "ha">' + "".join(
        f'<!ENTITY {chr(98 + i)} "{f"&{chr(97 + i)};" * 10}">' for i in range(8)
    )
    with pytest.raises(ArgumentError):
        description_in(f"{bomb}]><l>&i;</l>".encode())
    with pytest.raises(ArgumentError):
        description_in(b'<!DOCTYPE l [<!ENTITY x SYSTEM "file:///etc/passwd">]><l>&x;</l>')
    # Deep, but within the size limit.
    deep = "<a>" * 100_000 + "</a>" * 100_000
    with pytest.raises(ArgumentError):
        description_in(deep.encode())
    with pytest.raises(AdminError) as caught:
        description_in(b" " * (ADMIN_BODY_BYTES_MAX + 1))
    assert caught.value.http_status == 413


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    with pytest.raises(ArgumentError):
        description_in(data)


@given(st.text())
def test_any_text_is_written_as_xml(text: str) -> None:
    """What XML cannot contain is replaced; everything else comes back."""
    back = ElementTree.fromstring(f'<a b="{escaped(text)}">{element("c", text)}</a>')
    kept = "".join(
        c if c in "\t\n\r" or " " <= c <= "\ud7ff" or "\ue000" <= c <= "\ufffd" or c >= "\U00010000" else "\ufffd"
        for c in text
    )
    assert (back.findtext("c") or "") == kept


def test_moments() -> None:
    assert moment(0) == "1970-01-01T00:00:00.000Z"
    assert moment(1_704_067_200_123) == "2024-01-01T00:00:00.123Z"


def test_an_entry_is_this_text() -> None:
    """Literally, because one client navigates by prefixes and their positions."""
    site = Site("h:1", "contoso", "2021-05")
    entry = Entry("t/Subscriptions/s/Rules/$Default", "$Default", 0, 1, "<X/>")
    url = "https://h:1/t/Subscriptions/s/Rules/$Default?api-version=2021-05"
    inside = (
        f'<id>{url}</id><title type="text">$Default</title><published>1970-01-01T00:00:00.000Z</published>'
        "<updated>1970-01-01T00:00:00.001Z</updated><author><name>contoso</name></author>"
        f'<link rel="self" href="{url}"/><content type="application/xml"><X/></content></entry>'
    )
    assert entry_text(entry, site, root=True) == f'<entry xmlns="{ATOM}">{inside}'
    assert feed_text("$Resources/queues", "Queues", [entry], Page(0, 1), site, 0, True) == (
        f'<feed xmlns="{ATOM}"><title type="text">Queues</title><id>https://h:1/$Resources/queues?api-version=2021-05'
        '</id><updated>1970-01-01T00:00:00.000Z</updated><link rel="self" '
        'href="https://h:1/$Resources/queues?api-version=2021-05&amp;$skip=0&amp;$top=1"/><link rel="next" '
        f'href="https://h:1/$Resources/queues?api-version=2021-05&amp;$skip=1&amp;$top=1"/><entry>{inside}</feed>'
    )


@pytest.mark.parametrize("text", [b"<a>" * 200_000, b"<a>" + b"<b/>" * 200_000 + b"</a>"])
def test_a_body_of_countless_elements_is_refused_while_it_is_read(text: bytes) -> None:
    gc.collect()
    tracemalloc.start()
    try:
        with pytest.raises(ArgumentError, match="more than"):
            description_in(text)
        _, highest_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert highest_bytes < 8 * len(text)


@pytest.mark.parametrize(
    "inner",
    [
        "<a " + " ".join(f'b{number}="x"' for number in range(ADMIN_XML_ELEMENTS_MAX)) + "/>",
        "<a " + " ".join(f'b{number}="x"' for number in range(20_000)) + "/>",
        "<!---->" * 50_000,
        "<?a?>" * 50_000,
        "x" * (ADMIN_XML_PIECE_BYTES_MAX + 1),
        f'<a xmlns="{"x" * ADMIN_XML_NAME_CHARS_MAX}"/>',
        f'<a xmlns:p="{"x" * ADMIN_XML_NAME_CHARS_MAX}" p:b="x"/>',
    ],
    ids=["attributes", "a long tag", "comments", "instructions", "a long text", "a long name", "a long attribute"],
)
def test_what_costs_more_than_its_bytes_is_refused(inner: str) -> None:
    with pytest.raises(ArgumentError, match="more than"):
        read(inner)


def test_a_long_namespace_is_not_written_into_every_name(monkeypatch: pytest.MonkeyPatch) -> None:
    started = 0
    start = _BoundedTree.start

    def counting(self: _BoundedTree, tag: str, attributes: dict[str, str]) -> ElementTree.Element:
        nonlocal started
        started += 1
        return start(self, tag, attributes)

    monkeypatch.setattr(_BoundedTree, "start", counting)
    space = "x" * 100_000
    with pytest.raises(ArgumentError, match="a name with more than"):
        description_in(f'<entry xmlns="{space}">{"<e/>" * 9_000}</entry>'.encode())
    assert started == 1
