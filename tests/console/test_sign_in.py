"""Signing in to the console at a real provider (`oidc-provider`, pinned in provider/package.json), in a real browser.

The console is at `localhost` and the provider at `127.0.0.1`: for the browser these are two sites.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.browser import Browser
from tests.npm import installed
from twinbus.auth.policies import Right
from twinbus.broker.configuration.config import JwtConfig, NamespaceConfig, SignInConfig
from twinbus.entities.settings import QueueSettings
from twinbus.testing import Broker

# A browser takes its time on a busy machine, and the first run installs the provider.
pytestmark = pytest.mark.timeout(300)

FOLDER = Path(__file__).parent / "provider"
SECRET = "a secret of the test: 100% + more"
AUDIENCE = "api://bus"
ROLES = {"ann": ["operators"], "bob": ["readers"], "eve": ["others"]}


class RealProvider:
    """The provider's process."""

    def __init__(self, node: str) -> None:
        self._process = subprocess.Popen(
            [node, "main.js"], cwd=FOLDER, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        found = self._read()
        self.issuer = str(found["issuer"])
        self.jwks = json.dumps(found["jwks"])

    def serve(self, redirect_uri: str) -> None:
        """Register the console."""
        assert self._process.stdin is not None
        told = {"redirect_uri": redirect_uri, "secret": SECRET, "audience": AUDIENCE, "roles": ROLES}
        self._process.stdin.write(json.dumps(told) + "\n")
        self._process.stdin.flush()
        self._read()

    def _read(self) -> Any:
        """The next line of JSON; the provider also prints advice."""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("{"):
                return json.loads(line)
        raise AssertionError("the provider ended")

    def stop(self) -> None:
        self._process.terminate()
        self._process.communicate(timeout=20)


@pytest.fixture
def provider() -> Iterator[RealProvider]:
    made = RealProvider(installed(FOLDER, "the identity provider"))
    yield made
    made.stop()


@pytest.fixture
def console(provider: RealProvider, tmp_path: Path) -> Iterator[str]:
    """The console's address."""
    (tmp_path / "jwks.json").write_text(provider.jwks)
    (tmp_path / "secret").write_text(SECRET)
    jwt = JwtConfig(
        issuer=provider.issuer,
        audience=AUDIENCE,
        jwks=tmp_path / "jwks.json",
        roles={"operators": frozenset(Right), "readers": frozenset({Right.LISTEN})},
        sign_in=SignInConfig(
            client_id="console",
            authorization_endpoint=f"{provider.issuer}/auth",
            token_endpoint=f"{provider.issuer}/token",
            client_secret_file=tmp_path / "secret",
        ),
    )
    namespace = NamespaceConfig("contoso", queues=[QueueSettings(path="orders")], jwt=jwt)
    with Broker([namespace, NamespaceConfig("fabrikam")], dev=False, sync=False) as broker:
        address = f"http://localhost:{broker.endpoint('contoso').port}/console"
        provider.serve(f"{address}/signed-in")
        yield address


def sign_in(browser: Browser, account: str) -> None:
    browser.click("a.button", "Sign in with 127.0.0.1")
    browser.one("h1", "Provider")
    browser.fill("Account", account)
    browser.click("button", "Continue")


def test_a_person_signs_in_and_out(browser: Browser, console: str) -> None:
    browser.open(console)
    sign_in(browser, "ann")
    browser.one("tbody [data-row]", "orders")
    assert browser.driver.current_url == f"{console}#/n/contoso"
    browser.press("u")
    browser.sees("as ann@contoso.example")
    browser.sees("Not logged in.")
    browser.open(f"{console}#/n/contoso/e/orders")
    browser.one("h1", "orders")
    browser.press("s")
    browser.fill("Body", '{"from": "an account"}')
    browser.click("dialog button[type=submit]")
    browser.gone("dialog")
    browser.click("#logout")
    browser.one("a.button", "Sign in with 127.0.0.1")
    browser.script("location.reload()")
    browser.one("a.button", "Sign in with 127.0.0.1")


def test_a_login_survives_a_reload(browser: Browser, console: str) -> None:
    browser.open(console)
    sign_in(browser, "bob")
    browser.one("tbody [data-row]", "orders")
    browser.script("location.reload()")
    browser.one("tbody [data-row]", "orders")
    ours = [each for each in browser.driver.get_cookies() if each["name"].startswith("twinbus")]
    assert [(each["sameSite"], each["httpOnly"]) for each in ours] == [("Strict", True)]


def test_a_person_changes_their_mind(browser: Browser, console: str) -> None:
    browser.open(console)
    browser.click("a.button", "Sign in with 127.0.0.1")
    browser.click("button", "Cancel")
    browser.sees(
        "127.0.0.1 did not sign you in (access_denied: <b>The person</b> changed their mind). Sign in again, or log in "
        "with a key.",
        ".wrong",
    )
    assert browser.driver.current_url == console
    browser.script("location.reload()")
    browser.one("a.button", "Sign in with 127.0.0.1")
    assert browser.one(".login").text.count("changed their mind") == 0


def test_an_account_without_a_role(browser: Browser, console: str) -> None:
    browser.open(console)
    sign_in(browser, "eve")
    browser.sees("Your account has no role that grants a right on the namespace 'contoso'.", ".wrong")
    assert not browser.one("#main").find_elements("css selector", "tbody")


def test_each_namespace_offers_its_own_ways(browser: Browser, console: str) -> None:
    browser.open(console)
    sign_in(browser, "ann")
    browser.one("tbody [data-row]", "orders")
    # The browser logs that the broker refused a request.
    browser.forgive()
    browser.open(f"{console}#/n/fabrikam")
    browser.one("h1", "Log in")
    assert browser.one("select").get_attribute("value") == "fabrikam"
    assert browser.all("a.button") == []
    browser.click("select option[value=contoso]")
    browser.one("a.button", "Sign in with 127.0.0.1")


def test_by_keyboard(browser: Browser, console: str) -> None:
    browser.open(console)
    browser.one("a.button")
    browser.until(lambda: browser.driver.switch_to.active_element.accessible_name == "Sign in with 127.0.0.1")
    browser.press("\ue007")
    browser.one("h1", "Provider")
    assert browser.driver.current_url.startswith("http://127.0.0.1:")
