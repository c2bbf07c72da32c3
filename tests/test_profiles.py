"""What the two profiles of Hypothesis promise: examples that depend on the law alone, and ten times as many of them."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

EXPECTED = {"fiberscope": (7, 300, 100), "thorough": (70, 1000, 1000)}


@pytest.mark.parametrize("profile", EXPECTED)
def test_how_many_examples_a_profile_draws(profile: str, project_root: Path) -> None:
    laws = project_root / "tests" / "profile_laws.py"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", str(laws)]
    environment = {**os.environ, "HYPOTHESIS_PROFILE": profile, "EXPECTED": repr(EXPECTED[profile])}
    done = subprocess.run(command, check=False, cwd=project_root, env=environment, capture_output=True, text=True)
    assert done.returncode == 0 and "4 passed" in done.stdout, done.stdout


def drawn() -> list[float]:
    """The examples of one law, with constants as Hypothesis likes them."""
    seen: list[float] = []

    @given(st.floats(allow_nan=False), st.integers())
    def law(x: float, n: int) -> None:
        seen.extend((x, n))

    law()
    return seen


@pytest.mark.skipif(settings().max_examples == 1000, reason="thorough welcomes the constants of the source")
def test_examples_do_not_depend_on_the_modules_that_are_loaded(tmp_path: Path) -> None:
    before = drawn()
    path = tmp_path / "neighbour.py"
    path.write_text("NUMBERS = " + repr([[10**6 + i, i + 0.375] for i in range(200)]) + "\n")
    spec = importlib.util.spec_from_file_location("neighbour", path)
    assert spec is not None and spec.loader is not None
    sys.modules["neighbour"] = module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
        assert drawn() == before
    finally:
        del sys.modules["neighbour"]
