"""SAS tokens, created by the official Python SDK or by hand in the forms of other SDKs."""

from __future__ import annotations

import hmac
import string
from base64 import b64encode
from hashlib import sha256
from urllib.parse import quote

import pytest
from azure.servicebus._pyamqp.utils import generate_sas_token
from hypothesis import given
from hypothesis import strategies as st

from twinbus.auth.policies import ALL_RIGHTS, Policies, Policy, rights_of
from twinbus.auth.sas import SKEW_S, parse, sign, verify
from twinbus.errors import UnauthorizedError
from twinbus.limits import TOKEN_BYTES_MAX

NOW_S = 1_700_000_000
ROOT = Policy("RootManageSharedAccessKey", ALL_RIGHTS, "first+key/=", "second key ü")
ORDERS = Policy("orders policy", rights_of(["Send"]), "orders-key", scope="orders")
POLICIES = Policies([ROOT, ORDERS])

resources = st.sampled_from(["sb://contoso", "sb://contoso:5672/orders", "https://h.x/a/b?api-version=2021-05", "h:1"])
keys = st.text(string.printable, min_size=1, max_size=40)


def by_hand(resource: str, key_name: str, key: str, expiry: str) -> str:
    """Create a token from an encoded `resource`, with its parts in another order than ours."""
    signature = b64encode(hmac.new(key.encode(), f"{resource}\n{expiry}".encode(), sha256).digest()).decode()
    return f"SharedAccessSignature se={expiry}&skn={key_name}&sr={resource}&sig={quote(signature, safe='')}"


def test_a_token_of_the_python_sdk_is_verified() -> None:
    token = generate_sas_token("sb://contoso:5672/Orders", ROOT.name, ROOT.primary_key, NOW_S + 60)
    parsed, policy = verify(token, POLICIES.find, NOW_S)
    assert policy is ROOT
    assert parsed.path == "orders"
    assert parsed.expiry_s == NOW_S + 60


def test_the_python_sdk_encodes_the_key_name_twice() -> None:
    special = Policy("a/b c%d", ALL_RIGHTS, "k")
    token = generate_sas_token("sb://contoso/orders", special.name, "k", NOW_S + 60)
    assert verify(token, Policies([special]).find, NOW_S)[1] is special


def test_the_secondary_key_counts_as_much() -> None:
    token = generate_sas_token("sb://contoso/orders", ROOT.name, ROOT.secondary_key, NOW_S + 60)
    assert verify(token, POLICIES.find, NOW_S)[1] is ROOT


def test_lower_case_encoding_is_verified_over_the_raw_text() -> None:
    resource = quote("https://contoso.example/a%2Fb/$Resources?api-version=2021-05".lower(), safe="").lower()
    assert "%3a%2f%2f" in resource
    token = by_hand(resource, ROOT.name, ROOT.primary_key, str(NOW_S + 300))
    assert verify(token, POLICIES.find, NOW_S)[0].path == "a/b/$resources"


def test_an_unencoded_resource_and_leading_zeros_are_verified_as_they_stand() -> None:
    token = by_hand("sb://contoso/orders", ROOT.name, ROOT.primary_key, f"000{NOW_S}")
    assert verify(token, POLICIES.find, NOW_S)[0].expiry_s == NOW_S


def test_a_plus_left_in_the_signature_is_a_plus() -> None:
    for n in range(200):
        token = sign("sb://contoso/orders", ROOT.name, ROOT.primary_key, NOW_S + n)
        if "%2B" in token:
            assert verify(token.replace("%2B", "+"), POLICIES.find, NOW_S)
            return
    pytest.fail("no signature had a plus")


def test_our_token_equals_the_sdks() -> None:
    ours = sign("sb://contoso:1/orders", "Root", "k", NOW_S)
    theirs = generate_sas_token("sb://contoso:1/orders", "Root", "k", NOW_S)
    assert set(ours.split(" ")[1].split("&")) == set(theirs.split(" ")[1].split("&"))


@given(resource=resources, key=keys, life_s=st.integers(0, 10**6), second=st.booleans())
def test_what_we_sign_we_verify(resource: str, key: str, life_s: int, second: bool) -> None:
    policy = Policy("p", ALL_RIGHTS, "other" if second else key, key if second else "")
    token = sign(resource, "p", key, NOW_S + life_s)
    assert verify(token, Policies([policy]).find, NOW_S)[1] is policy


@given(wrong=keys.filter(lambda key: key not in ROOT.keys), resource=resources)
def test_a_wrong_key_is_refused(wrong: str, resource: str) -> None:
    with pytest.raises(UnauthorizedError, match="InvalidSignature"):
        verify(sign(resource, ROOT.name, wrong, NOW_S + 60), POLICIES.find, NOW_S)


@given(late_s=st.integers(1, 10**9))
def test_an_expired_token_is_refused_after_the_skew(late_s: int) -> None:
    token = sign("sb://contoso", ROOT.name, ROOT.primary_key, NOW_S)
    assert verify(token, POLICIES.find, NOW_S + SKEW_S)
    with pytest.raises(UnauthorizedError, match=r"ExpiredToken: The token is expired\. Expiration time:"):
        verify(token, POLICIES.find, NOW_S + SKEW_S + late_s)


@given(data=st.data())
def test_a_tampered_token_is_refused(data: st.DataObject) -> None:
    token = sign("sb://contoso/orders", ROOT.name, ROOT.primary_key, NOW_S + 60)
    at = data.draw(st.integers(len("SharedAccessSignature "), len(token) - 1))
    new = data.draw(st.sampled_from(string.ascii_letters + string.digits + "%&=+/. "))
    changed = token[:at] + new + token[at + 1 :]
    start, end = token.index("&sig="), token.index("&se=")
    parts_before = parse(token)
    try:
        parsed, policy = verify(changed, POLICIES.find, NOW_S)
    except UnauthorizedError:
        return
    # What still passes must be the same token in another spelling (case of the key name or of a hex digit in `sig`).
    assert policy is ROOT
    assert (parsed.resource, parsed.expiry) == (parts_before.resource, parts_before.expiry)
    assert parsed.signature == parts_before.signature or not start <= at < end


def test_a_policy_of_another_entity_is_refused() -> None:
    token = sign("sb://contoso/orders/x", "orders policy", "orders-key", NOW_S + 60)
    assert verify(token, POLICIES.find, NOW_S)[1] is ORDERS
    for resource in ("sb://contoso/invoices", "sb://contoso", "sb://contoso/orders2"):
        with pytest.raises(UnauthorizedError):
            verify(sign(resource, "orders policy", "orders-key", NOW_S + 60), POLICIES.find, NOW_S)


def test_an_unknown_key_name_reads_like_a_wrong_key() -> None:
    with pytest.raises(UnauthorizedError, match="InvalidSignature: The token has an invalid signature"):
        verify(sign("sb://contoso", "nobody", "k", NOW_S + 60), POLICIES.find, NOW_S)


@pytest.mark.parametrize(
    ("token", "problem"),
    [
        ("Bearer x", "does not start"),
        ("SharedAccessSignature ", "no 'sr'"),
        ("SharedAccessSignature sr=a&sig=b&se=1", "no 'skn'"),
        ("SharedAccessSignature sr=a&sig=&se=1&skn=k", "no 'sig'"),
        ("SharedAccessSignature sr=a&sig=b&se=soon&skn=k", "'se' is not a number"),
        ("SharedAccessSignature sr=a&sig=b&se=-1&skn=k", "'se' is not a number"),
        ("SharedAccessSignature sr=a&sig=b&se=" + "9" * 16 + "&skn=k", "'se' is not a number"),
        ("SharedAccessSignature sr=a&sr=b&sig=b&se=1&skn=k", "'sr' twice"),
        ("SharedAccessSignature " + "x" * TOKEN_BYTES_MAX, "longer than"),
    ],
)
def test_a_malformed_token_says_why(token: str, problem: str) -> None:
    with pytest.raises(UnauthorizedError, match=problem):
        parse(token)


@given(st.text(max_size=300))
def test_parsing_ends_in_a_token_or_an_argument_error(text: str) -> None:
    for token in (text, "SharedAccessSignature " + text, "SharedAccessSignature sr=" + text + "&sig=s&se=1&skn=n"):
        try:
            verify(token, POLICIES.find, NOW_S)
        except UnauthorizedError:
            continue
        pytest.fail("a random token was accepted")


def test_a_repr_hides_the_signature() -> None:
    token = sign("sb://contoso", "Root", "k", NOW_S)
    assert parse(token).signature not in repr(parse(token))
