"""A real browser for pages: Debian's chromium, driven by playwright, without a GPU."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
ARGUMENTS = ["--no-sandbox", "--use-gl=angle", "--use-angle=swiftshader", "--enable-unsafe-swiftshader"]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Chromium; where there is none the tests skip, where there is one they must pass."""
    if CHROMIUM is None:
        pytest.skip("no chromium on this machine (Debian: apt install chromium)")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        yield found
        found.close()


@pytest.fixture
def opened(browser: Any) -> Iterator[Callable[..., Any]]:
    """Open a file and wait for its explorers; whatever the console says, or whatever is fetched, fails the test."""
    said: list[str] = []
    pages: list[Any] = []

    def open_page(path: Path, **settings: Any) -> Any:
        page = browser.new_page(viewport={"width": 1100, "height": 900}, **settings)
        pages.append(page)
        page.on("console", lambda message: said.append(message.text))
        page.on("pageerror", lambda error: said.append(str(error)))
        page.on("request", lambda request: said.append(request.url) if not _own(request.url) else None)
        page.goto(path.as_uri())
        page.wait_for_function("[...document.querySelectorAll('.fx')].every(x => x.dataset.ready === 'yes')")
        return page

    yield open_page
    for page in pages:
        page.close()
    assert said == []


def _own(url: str) -> bool:
    return url.startswith(("file:", "data:", "blob:"))
