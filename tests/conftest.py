"""What all tests share: a quiet numerical environment, one Hypothesis profile, the folder of real files."""

from __future__ import annotations

import gc
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers

# Before NumPy, torch or matplotlib load: several test processes run side by side, none has a screen.
for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ.setdefault(variable, "1")
os.environ.setdefault("MPLBACKEND", "Agg")

# No deadline: the first call of a compiled kernel takes seconds, later ones microseconds.
# The same examples in every run, so that a failure belongs to the change under test; new ones are drawn by "thorough".
settings.register_profile("fiberscope", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile(
    "thorough", parent=settings.get_profile("fiberscope"), derandomize=False, max_examples=1000, print_blob=True
)
PROFILE = os.environ.get("HYPOTHESIS_PROFILE", "fiberscope")
settings.load_profile(PROFILE)

# One number in twenty that Hypothesis draws is a constant, half of these from the source of the modules that happen to
# be loaded: the examples of a law depended on the tests that ran before it. No setting turns that off (6.170), so the
# collection is replaced by the empty one it starts from; tests/test_profiles.py fails if that stops working.
if PROFILE == "fiberscope":
    providers._get_local_constants = lambda: providers._local_constants

THOROUGH = 10
"""How many times its own number of examples a law draws under ``thorough``, up to a thousand."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Under ``thorough`` a number that a law asks for itself is scaled: it would override the profile's otherwise."""
    if PROFILE != "thorough":
        return
    for law in {id(law): law for item in items if (law := getattr(item, "obj", None))}.values():
        # @settings cannot be applied twice, and keeps what it was given in this attribute.
        own = getattr(law, "_hypothesis_internal_use_settings", None)
        if own is not None:
            many = max(own.max_examples, min(THOROUGH * own.max_examples, 1000))
            law._hypothesis_internal_use_settings = settings(own, max_examples=many)


def pytest_collection_finish() -> None:
    """Libraries and tests, a million objects that stay, are not looked through again at every collection."""
    gc.collect()
    gc.freeze()


ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def project_root() -> Path:
    """The checkout itself: README, docs, examples."""
    return ROOT


@pytest.fixture(scope="session")
def shared_folder() -> Path:
    """The folder of real networks and data: ``FIBERSCOPE_SHARED``, or ``shared`` beside the checkout."""
    folder = Path(os.environ.get("FIBERSCOPE_SHARED", ROOT.parent / "shared"))
    if not folder.is_dir():
        pytest.skip(f"no real files: set FIBERSCOPE_SHARED to their folder (looked at {folder})")
    return folder


@pytest.fixture(scope="session")
def shared_nets(shared_folder: Path) -> Path:
    """The folder of real ONNX networks."""
    folder = shared_folder / "nets"
    if not folder.is_dir():
        pytest.skip(f"no networks in {shared_folder}")
    return folder


# -- a real browser for pages: Debian's chromium, driven by playwright, without a GPU

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
