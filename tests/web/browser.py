"""A real Chromium, without a screen, that can reach nothing but this machine."""

from __future__ import annotations

import contextlib
import json
import tempfile
import time

import pytest
from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By

from sievenet import programs

FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-extensions",
    "--force-prefers-reduced-motion",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1, EXCLUDE localhost",
)


class Browser:
    """A window of it."""

    def __init__(self, driver):
        self.driver = driver
        self._requests = []

    def find(self, selector):
        return self.driver.find_element(By.CSS_SELECTOR, selector)

    def all(self, selector):
        return self.driver.find_elements(By.CSS_SELECTOR, selector)

    def text(self, selector):
        return self.find(selector).text

    def run(self, script, *arguments):
        return self.driver.execute_script(script, *arguments)

    def until(self, condition, seconds=40):
        """Wait until something holds; what it is then."""
        end = time.monotonic() + seconds
        while True:
            with contextlib.suppress(Exception):
                found = condition()
                if found:
                    return found
            if time.monotonic() > end:
                found = condition()
                assert found, f"did not come true within {seconds} s: {self.text('body')[:2000]}"
                return found
            time.sleep(0.1)

    def requests(self):
        """Every address that was asked for so far."""
        for entry in self.driver.get_log("performance"):
            message = json.loads(entry["message"])["message"]
            if message["method"] in ("Network.requestWillBeSent", "Network.webSocketCreated"):
                url = message["params"].get("url") or message["params"]["request"]["url"]
                self._requests.append(url)
        return self._requests

    def complaints(self):
        """What the console says that is worse than information."""
        return [each["message"] for each in self.driver.get_log("browser") if each["level"] in ("SEVERE", "WARNING")]

    def resize(self, width, height, mobile=False):
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": mobile}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)

    def theme(self, name):
        self.run("document.documentElement.dataset.theme = arguments[0]", name)


@contextlib.contextmanager
def browser():
    """A browser with a profile of its own."""
    lacking = programs.missing("browser")
    if lacking:
        pytest.skip(f"needs {lacking[0].name} (scripts/system-packages browser)")
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        options = webdriver.ChromeOptions()
        options.binary_location = programs.find("chromium")
        options.accept_insecure_certs = True
        for flag in (*FLAGS, f"--user-data-dir={profile}"):
            options.add_argument(flag)
        options.set_capability("goog:loggingPrefs", {"performance": "ALL", "browser": "ALL"})
        driver = webdriver.Chrome(options=options, service=Service(programs.find("chromedriver")))
        try:
            made = Browser(driver)
            made.resize(1440, 1010)
            yield made
        finally:
            driver.quit()
