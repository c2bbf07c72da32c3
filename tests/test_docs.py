"""What readers meet first uses public names, and the documentation is built by the command that CI runs."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent
FENCE = re.compile(r"^ *```(?:python|pycon|py)\n(.*?)^ *```", re.MULTILINE | re.DOTALL)
SHOWN = sorted([*(ROOT / "examples").glob("*.py"), ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])

# Imports of a module inside the package, each with its reason.
DEEP = {
    "fiberscope.fibers.hidden_hyperplanes": "moves raw weights; whoever asks a question takes fs.fiber",
}


def deep_imports(code: str) -> set[str]:
    """The modules inside the package that some code (a script, or lines with prompts) imports from."""
    lines = [line.lstrip().removeprefix(">>> ").removeprefix("... ") for line in code.splitlines()]
    found = re.findall(r"^(?:from|import) (fiberscope\.[\w.]+)", "\n".join(lines), re.MULTILINE)
    return set(found)


@pytest.mark.parametrize("path", SHOWN, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_what_readers_see_uses_public_names(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    code = text if path.suffix == ".py" else "\n".join(FENCE.findall(text))
    assert deep_imports(code) - set(DEEP) == set()


def test_a_deep_import_is_seen() -> None:
    assert deep_imports(">>> from fiberscope.network.network import Network\n") == {"fiberscope.network.network"}
    assert deep_imports("import fiberscope as fs\nfrom fiberscope import Network\n") == set()


def test_the_command_of_ci_builds_the_documentation() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = dict(re.findall(r"^([a-z]+):([^#\n]*)", makefile, re.MULTILINE))
    assert "docs" in targets["test"].split()
    recipe = re.search(r"^docs:.*\n\t(.*)", makefile, re.MULTILINE)
    assert recipe is not None and " -W " in recipe[1]
    assert "make test" in (ROOT / ".ci" / "run").read_text(encoding="utf-8")


def test_paths_that_contributing_names_exist() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    for name in re.findall(r"`((?:tests|docs|examples|benchmarks|src)/[\w/.-]*)`", text):
        assert (ROOT / name).exists(), name


class FakeApp:
    """Keeps what the configuration connects."""

    def __init__(self) -> None:
        self.connected: list[tuple[int, Callable[..., None]]] = []

    def connect(self, event: str, function: Callable[..., None], priority: int = 500) -> None:
        assert event == "autodoc-process-docstring"
        self.connected.append((priority, function))


def through_napoleon(what: str, lines: list[str]) -> list[str]:
    """A docstring as the pages show it, after the configuration and napoleon."""
    napoleon = pytest.importorskip("sphinx.ext.napoleon")
    source = ast.parse((ROOT / "docs" / "conf.py").read_text(encoding="utf-8"))
    wanted = [n for n in source.body if "SENTENCES" in ast.dump(n) or "name='setup'" in ast.dump(n)]
    names: dict[str, Any] = {"Any": Any}
    exec(compile(ast.Module(wanted, []), "conf.py", "exec"), names)
    app = FakeApp()
    names["setup"](app)

    def convert(app: Any, what: str, name: str, value: Any, options: Any, lines: list[str]) -> None:
        config = napoleon.Config(napoleon_google_docstring=False)
        lines[:] = napoleon.NumpyDocstring(lines, config, None, what, name, value, options).lines()

    for _, function in sorted([*app.connected, (500, convert)], key=lambda pair: pair[0]):
        function(app, what, "module.NAME", 1.0, None, lines)
    return lines


def test_a_sentence_with_a_colon_is_not_taken_for_a_type() -> None:
    sentence = "Isolation of zeros: shorter pieces are not halved again."
    assert through_napoleon("data", [sentence, ""]) == [sentence, ""]
    assert any(":param" in line or "Parameters" in line for line in _function_page())


def _function_page() -> list[str]:
    return through_napoleon("function", ["Do it.", "", "Parameters", "----------", "x", "    What.", ""])
