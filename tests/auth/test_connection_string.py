from __future__ import annotations

import pytest
from azure.servicebus._base_handler import _parse_conn_str

from twinbus.auth.connection_string import ConnectionString
from twinbus.errors import ConfigError

AZURE = "Endpoint=sb://contoso.servicebus.windows.net/;SharedAccessKeyName=Root;SharedAccessKey=abc+/=="
LOCAL = "Endpoint=sb://127.0.0.1:6001/;SharedAccessKeyName=Root;SharedAccessKey=k=;UseDevelopmentEmulator=true;"


def test_a_string_from_the_portal() -> None:
    parsed = ConnectionString.parse(AZURE)
    assert parsed.address == ("contoso.servicebus.windows.net", 5671)
    assert (parsed.key_name, parsed.key) == ("Root", "abc+/==")
    assert not parsed.emulator
    assert parsed.entity_path is None


def test_a_local_string_keeps_its_port() -> None:
    parsed = ConnectionString.parse(LOCAL)
    assert parsed.address == ("127.0.0.1", 6001)
    assert parsed.emulator
    assert parsed.format() == LOCAL


def test_the_emulator_port_is_the_plain_one() -> None:
    assert ConnectionString.parse(LOCAL.replace(":6001", "")).address == ("127.0.0.1", 5672)


def test_names_are_case_insensitive_and_unknown_ones_ignored() -> None:
    text = " endpoint=sb://h/ ; SHAREDACCESSKEYNAME=n;sharedaccesskey=k;entitypath=a/b;TransportType=Amqp;; "
    assert ConnectionString.parse(text) == ConnectionString("h", None, "n", "k", entity_path="a/b")


def test_a_ready_made_signature() -> None:
    signature = "SharedAccessSignature sr=sb%3A%2F%2Fh&sig=x%3D&se=1&skn=n"
    parsed = ConnectionString.parse(f"Endpoint=sb://h;SharedAccessSignature={signature}")
    assert parsed.signature == signature
    assert ConnectionString.parse(parsed.format()) == parsed


def test_ipv6() -> None:
    parsed = ConnectionString.parse("Endpoint=sb://[::1]:6001;SharedAccessKeyName=n;SharedAccessKey=k")
    assert parsed.address == ("::1", 6001)
    assert parsed.netloc == "[::1]:6001"
    assert ConnectionString.parse(parsed.format()) == parsed


def test_what_we_format_the_sdk_reads() -> None:
    text = ConnectionString("localhost", 6001, "Root", "k/+=", entity_path="orders", emulator=True).format()
    assert _parse_conn_str(text) == ("localhost:6001", "Root", "k/+=", "orders", None, None, True)


def test_a_repr_hides_the_secrets() -> None:
    assert "abc" not in repr(ConnectionString.parse(AZURE))
    assert "hidden" not in repr(ConnectionString.parse("Endpoint=sb://h;SharedAccessSignature=hidden"))


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "is empty"),
        (" ;; ", "is empty"),
        ("just text", "Part 1 .* has no '='"),
        ("SharedAccessKeyName=n;SharedAccessKey=k", "has no Endpoint"),
        ("Endpont=sb://h;SharedAccessKeyName=n;SharedAccessKey=k", "has 'Endpont': did you mean Endpoint"),
        ("Endpoint=h;SharedAccessKeyName=n;SharedAccessKey=k", "has no scheme"),
        ("Endpoint=sb://;SharedAccessKeyName=n;SharedAccessKey=k", "has no host"),
        ("Endpoint=sb://h:99999;SharedAccessKeyName=n;SharedAccessKey=k", "is not an address"),
        ("Endpoint=sb://h:0;SharedAccessKeyName=n;SharedAccessKey=k", "port 0"),
        ("Endpoint=sb://h", "no SharedAccessKey and no SharedAccessSignature"),
        ("Endpoint=sb://h;SharedAcessKey=k", "did you mean SharedAccessKey"),
        ("Endpoint=sb://h;SharedAccessKey=k", "no SharedAccessKeyName"),
        ("Endpoint=sb://h;SharedAccessKey=k;SharedAccessKeyName=n;SharedAccessSignature=s", "keep one"),
        ("Endpoint=sb://h;Endpoint=sb://g;SharedAccessKey=k;SharedAccessKeyName=n", "Endpoint twice"),
        (AZURE + ";UseDevelopmentEmulator=yes", "must be true or false"),
    ],
)
def test_a_wrong_string_says_what_is_wrong(text: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        ConnectionString.parse(text)


def test_an_error_never_shows_the_key() -> None:
    for text in ("Endpoint=sb://h;SharedAccessKey=topsecret", "Endpoint=sb://h;topsecret"):
        with pytest.raises(ConfigError) as caught:
            ConnectionString.parse(text)
        assert "topsecret" not in str(caught.value)
