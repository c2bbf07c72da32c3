"""Every script of the gallery runs by itself in an empty folder, and its README lists every script."""

from __future__ import annotations

import multiprocessing
import os
import re
import runpy
import sys
import traceback
import warnings
from contextlib import ExitStack, redirect_stderr, redirect_stdout
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"
SCRIPTS = sorted(EXAMPLES.glob("[!_]*.py"))


# Most of a short script's time goes into loading libraries. They are loaded once, and every script gets a fork of a
# process that has done nothing else.
PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload(["fiberscope.geometry.regions", "torch", "matplotlib.figure", "numba"])


def run_script(script: Path, folder: Path) -> tuple[int | None, str, str]:
    """The exit code of a script started in ``folder`` without a screen, and what it wrote."""
    process = PROCESSES.Process(target=alone, args=(script, folder), daemon=False)
    process.start()
    process.join(180)
    if process.is_alive():
        process.kill()
        process.join()
    out, errors = (folder / name for name in NAMES)
    return process.exitcode, out.read_text(encoding="utf-8"), errors.read_text(encoding="utf-8")


NAMES = "written.out", "written.err"


def alone(script: Path, folder: Path) -> None:
    """In its own process: run the script as if it had been started there."""
    os.chdir(folder)
    sys.argv[:] = [str(script)]
    sys.path.insert(0, str(script.parent))
    warnings.filterwarnings("error", category=DeprecationWarning, module="__main__")
    with ExitStack() as stack:
        out, errors = (stack.enter_context(Path(name).open("w", encoding="utf-8")) for name in NAMES)
        stack.enter_context(redirect_stdout(out))
        stack.enter_context(redirect_stderr(errors))
        try:
            runpy.run_path(str(script), run_name="__main__")
        except Exception:
            traceback.print_exc()
            sys.exit(1)


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.name)
def test_example_runs(script: Path, tmp_path: Path) -> None:
    code, out, errors = run_script(script, tmp_path)
    assert code == 0, errors
    assert out, "an example shows something"


def test_gallery_lists_every_script_and_no_other() -> None:
    listed = set(re.findall(r"\(([a-z0-9_]+\.py)\)", (EXAMPLES / "README.md").read_text(encoding="utf-8")))
    assert listed == {script.name for script in SCRIPTS}


def test_a_broken_example_is_noticed(tmp_path: Path) -> None:
    script = tmp_path / "broken.py"
    script.write_text("import fiberscope\nraise SystemExit(fiberscope.no_such_name)\n")
    code, _, errors = run_script(script, tmp_path)
    assert code == 1 and "no_such_name" in errors
