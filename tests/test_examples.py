"""Every script of the gallery runs by itself in an empty folder, and its README lists every script."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"
SCRIPTS = sorted(EXAMPLES.glob("[!_]*.py"))


def run_script(script: Path, folder: Path) -> subprocess.CompletedProcess[str]:
    """The finished process of a script started in ``folder`` without a screen."""
    environment = os.environ | {"MPLBACKEND": "Agg", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-W", "error::DeprecationWarning:__main__", str(script)]
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=180, check=False
    )


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.name)
def test_example_runs(script: Path, tmp_path: Path) -> None:
    done = run_script(script, tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout, "an example shows something"


def test_gallery_lists_every_script_and_no_other() -> None:
    listed = set(re.findall(r"\(([a-z0-9_]+\.py)\)", (EXAMPLES / "README.md").read_text(encoding="utf-8")))
    assert listed == {script.name for script in SCRIPTS}


def test_a_broken_example_is_noticed(tmp_path: Path) -> None:
    script = tmp_path / "broken.py"
    script.write_text("import fiberscope\nraise SystemExit(fiberscope.no_such_name)\n")
    assert run_script(script, tmp_path).returncode != 0
