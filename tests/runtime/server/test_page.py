"""The page in a real browser: a chat, coloured by who drafted what. Needs Debian's chromium and chromium-driver."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from tests.programs import needs
from tests.runtime.server.conftest import Serve
from tests.runtime.server.process import Server
from tests.waiting import until

pytestmark = pytest.mark.slow

_FLAGS = (
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync --disable-dev-shm-usage --window-size=1100,820"
)


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[webdriver.Chrome]:
    chromium, driver = needs("chromium"), needs("chromedriver")
    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    for flag in _FLAGS.split():
        options.add_argument(flag)
    options.add_argument(f"--user-data-dir={tmp_path_factory.mktemp('browser')}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    browser = webdriver.Chrome(options=options, service=Service(driver))
    yield browser
    browser.quit()


@pytest.fixture(scope="module")
def page_server(start_server: Serve, smollm2: Path) -> Server:
    return start_server(smollm2, "--context", "1024")


def figures(browser: webdriver.Chrome, answer: int = 0) -> dict[str, str]:
    """The figures under an answer, by name."""
    box = browser.find_elements(By.CSS_SELECTOR, ".answer")[answer]
    items = box.find_elements(By.CSS_SELECTOR, ".figures span")
    return {str(item.get_attribute("data-figure")): item.find_element(By.TAG_NAME, "b").text for item in items}


def send(browser: webdriver.Chrome, text: str) -> None:
    browser.find_element(By.ID, "input").send_keys(text, Keys.ENTER)


def finished(browser: webdriver.Chrome) -> bool:
    return browser.find_element(By.ID, "send").text == "Send"


def test_a_conversation_with_the_overlay(browser: webdriver.Chrome, page_server: Server, tmp_path: Path) -> None:
    server = page_server
    browser.get(f"http://127.0.0.1:{server.port}/")
    until(lambda: browser.find_element(By.ID, "model").text == "tiny", "the model's name is shown")
    browser.execute_script("document.getElementById('max_tokens').value = 80")
    send(browser, "Repeat this ten times: one two three four.")
    until(lambda: finished(browser), "the answer is finished")
    expected = server.chat("Repeat this ten times: one two three four.", max_tokens=80).json
    answer = browser.find_element(By.CSS_SELECTOR, ".answer .text")
    assert answer.get_property("textContent") == expected["choices"][0]["message"]["content"]
    shown = figures(browser)
    assert int(shown["tokens"]) == expected["usage"]["completion_tokens"]
    drafted = answer.find_elements(By.CSS_SELECTOR, ".token:not(.own)")
    assert len(drafted) == int(shown["drafts accepted"]) > 0
    own = len(answer.find_elements(By.CSS_SELECTOR, ".token.own"))
    assert int(shown["rounds"]) + 1 - own in (0, 1)  # a last token that is half a character is not shown
    assert float(shown["tokens/s"]) > 0 and "rejected" in shown
    assert len(browser.find_elements(By.CSS_SELECTOR, ".round")) == int(shown["rounds"])
    assert "drafted: " in browser.find_element(By.ID, "legend").text

    def colour() -> str:
        return drafted[0].value_of_css_property("background-color")

    coloured = colour()
    browser.find_element(By.ID, "overlay").click()
    assert colour() != coloured
    browser.find_element(By.ID, "overlay").click()
    assert colour() == coloured
    before = browser.find_element(By.TAG_NAME, "body").value_of_css_property("background-color")
    browser.find_element(By.ID, "theme").click()
    assert browser.find_element(By.TAG_NAME, "body").value_of_css_property("background-color") != before
    send(browser, "And again.")
    until(lambda: finished(browser), "the answer is finished")
    assert "prompt tokens cached" in figures(browser, 1)
    assert [line for line in browser.get_log("browser") if line["level"] in ("SEVERE", "WARNING")] == []


def test_stop_frees_the_place_and_errors_are_shown(browser: webdriver.Chrome, page_server: Server) -> None:
    server = page_server
    browser.get(f"http://127.0.0.1:{server.port}/")
    send(browser, "Count from one to a thousand in words.")
    until(lambda: browser.find_elements(By.CSS_SELECTOR, ".token"), "a token is shown")
    browser.find_element(By.ID, "send").click()
    until(lambda: finished(browser), "the answer is finished")
    until(lambda: server.metric("active_sequences") == 0, "the place is free")
    assert any(line["status"] == 499 for line in server.requests_logged())
    browser.execute_script("document.getElementById('temperature').value = -1")
    send(browser, "Hello")
    until(lambda: browser.find_elements(By.CSS_SELECTOR, ".error"), "an error is shown")
    assert "temperature" in browser.find_element(By.CSS_SELECTOR, ".error").text
