"""The service of tests/api, and a real Chromium to look at it with."""

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI

from openbook.settings import Settings
from tests.openbook.api.conftest import app, engine, serving, settings, slow_search

__all__ = ["app", "engine", "settings", "slow_search"]

NAMES = ("chromium", "chromium-browser", "google-chrome-stable", "google-chrome")
PATIENCE_MS = 30_000

# The playwright types are known only where the extra `browser` is installed.
Page = Any
OpenPage = Callable[..., Page]


def launch(driver: Any) -> Any:
    """A Chromium of this machine, else the one that `playwright install chromium` brought; skips where neither is."""
    own = driver.chromium.executable_path
    path = next(filter(None, map(shutil.which, NAMES)), own if Path(own).exists() else None)
    if path is None:
        pytest.skip(f"needs one of {', '.join(NAMES)}, or: playwright install chromium")
    # it draws on no screen and asks no other host
    options = ["--disable-gpu", "--disable-background-networking", "--disable-component-update", "--disable-sync"]
    # Chromium's sandbox does not take root, which is what a container often is
    if os.geteuid() == 0:
        options.append("--no-sandbox")
    return driver.chromium.launch(executable_path=path, args=options)


@pytest.fixture(scope="package")
def browser() -> Iterator[Any]:
    """Ends with the tests of this folder: while it runs, no other test of this thread could start an event loop."""
    playwright = pytest.importorskip("playwright.sync_api", reason="needs the extra: pip install 'openbook[browser]'")
    with playwright.sync_playwright() as driver, launch(driver) as browser:
        yield browser


@pytest.fixture
def server(app: FastAPI, settings: Settings) -> Iterator[str]:
    with serving(app, settings) as address:
        yield address


@pytest.fixture
def open_page(browser: Any) -> Iterator[OpenPage]:
    """Opens an address in a window of its own. A script that fails, or that the policy stops, fails the test."""
    contexts = []
    wrong: list[str] = []

    def note(message: Any) -> None:
        # a response that is an error is logged by Chromium, and is often what a test is about
        if message.type == "error" and not message.text.startswith("Failed to load resource"):
            wrong.append(message.text)

    def open_page(address: str, **options: Any) -> Page:
        context = browser.new_context(**{"viewport": {"width": 1100, "height": 900}, **options})
        contexts.append(context)
        context.set_default_timeout(PATIENCE_MS)
        page = context.new_page()
        page.on("console", note)
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.goto(address)
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert wrong == []


def ask(page: Page, question: str) -> None:
    page.get_by_label("Question", exact=True).fill(question)
    page.get_by_role("button", name="Ask", exact=True).click()
