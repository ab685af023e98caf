"""A real browser for tests of pages: Debian's Chromium, headless, driven by selenium.

The fixture `browser` of `tests/conftest.py` gives every test that asks for it a `Browser`: a new window without cookies
in one Chromium that all tests share, because starting it takes seconds. Where there is none the test is skipped with
the reason, and fails when CI is set. At its end every request must have gone to this machine, and the page's own log
must be empty: a test that expects otherwise calls `browser.forgive()`.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

import pytest
from selenium.common.exceptions import (
    ElementClickInterceptedException,
    StaleElementReferenceException,
    WebDriverException,
)
from selenium.webdriver import ActionChains, Chrome, ChromeOptions
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webelement import WebElement

T = TypeVar("T")

PATIENCE_S = 120.0
FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--force-prefers-reduced-motion",
)
# What pages may load from.
HERE = ("localhost", "127.0.0.1", "::1")


class Browser:
    """One window of a real browser, and the words a test needs."""

    def __init__(self, driver: Chrome) -> None:
        self.driver = driver
        self._forgiven = False

    # --- looking ------------------------------------------------------------------------------------------------------

    def open(self, address: str) -> None:
        self.driver.get(address)

    def until(self, look: Callable[[], T], what: str = "") -> T:
        """What `look` gives once it is true: pages are drawn when they are ready, not when they are asked for."""
        end = time.monotonic() + PATIENCE_S
        last: Any = None
        while time.monotonic() < end:
            try:
                last = look()
            except (WebDriverException, StaleElementReferenceException, AssertionError, IndexError) as error:
                last = error
            else:
                if last:
                    return last
            time.sleep(0.05)
        shown = self.driver.find_element(By.TAG_NAME, "body").text
        raise AssertionError(
            f"{what or look} never came; last: {last!r}; the page:\n{shown[:5_000]}\n{self.log()[:20]}"
        )

    def all(self, selector: str) -> list[WebElement]:
        return self.driver.find_elements(By.CSS_SELECTOR, selector)

    def one(self, selector: str, text: str = "") -> WebElement:
        """The first element that is shown and holds the text, waited for."""

        def look() -> WebElement | None:
            found = [each for each in self.all(selector) if each.is_displayed() and text in each.text]
            return found[0] if found else None

        return self.until(look, f"{selector} with {text!r}")  # type: ignore[return-value]

    def sees(self, text: str, selector: str = "body") -> None:
        """Wait until the text is shown."""
        self.until(lambda: any(text in each.text for each in self.all(selector)), f"{text!r} in {selector}")

    def gone(self, selector: str) -> None:
        self.until(lambda: not [each for each in self.all(selector) if each.is_displayed()], f"no {selector}")

    def script(self, code: str, *arguments: Any) -> Any:
        return self.driver.execute_script(code, *arguments)

    # --- doing --------------------------------------------------------------------------------------------------------

    def click(self, selector: str, text: str = "") -> None:
        found = self.one(selector, text)
        try:
            found.click()
        except ElementClickInterceptedException:
            # Below the bar that stays in view: a person scrolls.
            self.script("arguments[0].scrollIntoView({block: 'center'})", found)
            found.click()

    def press(self, *keys: str) -> None:
        """Keys to whatever has the focus."""
        for key in keys:
            ActionChains(self.driver).send_keys(key).perform()

    def tab_to(self, name: str, tabs_max: int = 60) -> WebElement:
        """Press Tab until the element of that accessible name has the focus."""
        for _ in range(tabs_max):
            self.press(Keys.TAB)
            focused = self.driver.switch_to.active_element
            if focused.accessible_name == name:
                return focused
        raise AssertionError(f"{name!r} cannot be reached by Tab")

    def fill(self, label: str, text: str) -> WebElement:
        """Type into the field with that label."""

        def look() -> WebElement | None:
            found = [
                each for each in self.all("input, textarea") if each.is_displayed() and each.accessible_name == label
            ]
            return found[0] if found else None

        found: WebElement = self.until(look, f"a field {label!r}")  # type: ignore[assignment]
        found.clear()
        found.send_keys(text)
        return found

    def resize(self, width: int, height: int, *, mobile: bool = False) -> None:
        """The page's own size, also below what a window can be."""
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": mobile}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)

    def prefer(self, scheme: str) -> None:
        """What the system is said to prefer: light or dark."""
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})

    def picture(self, path: Path) -> None:
        self.driver.save_screenshot(str(path))

    # --- what happened ------------------------------------------------------------------------------------------------

    def hosts(self) -> set[str]:
        """The hosts of every request since the last look."""
        found = set()
        for entry in self.driver.get_log("performance"):  # type: ignore[no-untyped-call]
            message = json.loads(entry["message"])["message"]
            if message["method"] == "Network.requestWillBeSent":
                address = urlsplit(message["params"]["request"]["url"])
                if address.scheme not in ("data", "blob", "about", "file", "chrome"):
                    found.add(address.hostname or "")
        return found

    def log(self) -> list[str]:
        """What the page or the browser complained about since the last look."""
        return [entry["message"] for entry in self.driver.get_log("browser")]  # type: ignore[no-untyped-call]

    def forgive(self) -> None:
        """The log may hold something: the test looks at it itself."""
        self._forgiven = True

    def check(self) -> None:
        assert self.hosts() <= set(HERE), "a page asked another host for something"
        assert self._forgiven or self.log() == []


@contextmanager
def chromium() -> Iterator[Chrome]:
    """A headless Chromium with a profile of its own."""
    found, driver = shutil.which("chromium") or shutil.which("google-chrome"), shutil.which("chromedriver")
    if found is None or driver is None:
        missing = "there is no chromium with its chromedriver on this machine (Debian: chromium chromium-driver)"
        if os.environ.get("CI"):
            pytest.fail(missing)
        pytest.skip(missing)
    with tempfile.TemporaryDirectory(prefix="twinbus-browser-", ignore_cleanup_errors=True) as profile:
        options = ChromeOptions()
        options.binary_location = found
        for flag in (*FLAGS, f"--user-data-dir={profile}", "--window-size=1280,900"):
            options.add_argument(flag)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
        made = Chrome(options=options, service=Service(driver))
        try:
            yield made
        finally:
            made.quit()


@contextmanager
def opened(driver: Chrome) -> Iterator[Browser]:
    """A new window without cookies, sizes and wishes of the one before; looked over at its end."""
    before = driver.window_handles
    driver.switch_to.new_window("window")
    own = driver.current_window_handle
    for handle in before:
        driver.switch_to.window(handle)
        driver.close()
    driver.switch_to.window(own)
    driver.execute_cdp_cmd("Network.clearBrowserCookies", {})
    browser = Browser(driver)
    browser.log()
    browser.hosts()
    yield browser
    browser.check()
