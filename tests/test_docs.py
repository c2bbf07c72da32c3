"""What readers meet first uses public names, and the documentation is built by the command that CI runs."""

from __future__ import annotations

import ast
import importlib
import json
import re
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import fiberscope as fs
from fiberscope.studies.lab.registry import all_studies

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


def beside_the_configuration(name: str) -> Any:
    """A module that stands in ``docs``."""
    sys.path.insert(0, str(ROOT / "docs"))
    try:
        return importlib.import_module(name)
    finally:
        sys.path.remove(str(ROOT / "docs"))


def test_every_public_name_has_a_level_of_stability() -> None:
    levels = tomllib.loads((ROOT / "docs" / "stability.toml").read_text(encoding="utf-8"))
    named = levels["stable"] + levels["provisional"]
    assert sorted(named) == sorted(set(fs.__all__) - {"__version__"})
    assert set(levels["torch"]) <= set(named)


def test_every_public_name_and_picture_has_a_page() -> None:
    pages = beside_the_configuration("api_pages")
    files = {file for file, _, _ in pages.QUESTIONS}
    assert all(pages.page_of(name) in files for name in fs._NAMES)
    listed = re.findall(r"^generated/(\w+)$", (ROOT / "docs" / "api" / "index.md").read_text(), re.MULTILINE)
    assert listed == [file for file, _, _ in pages.QUESTIONS]
    assert all(f"fiberscope.plot.{name}\n" in pages.page("plot", "Pictures") for name in dir(fs.plot))


def test_every_command_has_a_page_with_its_options() -> None:
    pages = beside_the_configuration("command_pages")
    found = pages.commands()
    assert {"regions", "report", "equal", "reproduce"} <= set(found)
    regions = pages.page("regions", found["regions"])
    for text in (
        "$ fiberscope regions MODEL",
        "`--plane`",
        "`PATH PATH PATH`",
        "$ fiberscope regions model.onnx --box -1 1",
    ):
        assert text in regions


def test_findings_are_made_from_verdict_files(tmp_path: Path) -> None:
    tables = beside_the_configuration("tables")
    assert "No verdict file" in tables.findings(tmp_path)
    held = {
        "provenance": {"study": "energy", "scale": "quick", "tasks": 3, "study_version": 2, "missing": [{}]},
        "verdicts": [{"text": "It rises | falls.", "ours": "1 < 2", "holds": False}],
    }
    (tmp_path / "energy.json").write_text(json.dumps(held), encoding="utf-8")
    held["provenance"]["pooled"] = "Two runs | one table."
    missing = [{"error": "not run"}, {"error": "ValueError"}, {"error": "not run"}]
    other = {**held, "provenance": {**held["provenance"], "paper": "P", "options": {"net": "vit"}, "missing": missing}}
    (tmp_path / "other.json").write_text(json.dumps(other), encoding="utf-8")
    page = tables.findings(tmp_path)
    assert page.count("Two runs \\| one table.") == 1
    assert "### energy, quick scale, vit" in page and "| P |" not in page  # told, not counted
    assert "**1 tasks failed** and **2 tasks were not run**, and the table" in page
    assert "### energy, quick scale" in page and "1 tasks failed" in page and "findings/energy.json" in page
    assert "| It rises \\| falls. |  | 1 &lt; 2 | **does not hold** |" in page
    origin = {"study": "energy", "scale": "paper", "options": {"layers": 4, "runs": [1, 2], "seeds": None}}
    assert tables.command(origin, {"layers": 4}) == "fiberscope reproduce energy --scale paper --set runs='[1, 2]'"


def test_claims_are_counted_once_at_the_largest_scale() -> None:
    def held(scale: str, holds: bool) -> dict[str, Any]:
        return {"provenance": {"study": "a", "scale": scale, "paper": "P"}, "verdicts": [{"text": "", "holds": holds}]}

    page = beside_the_configuration("tables").counts([held("paper", False), held("quick", True)])
    assert page.endswith("| P | 0 | 0 | 1 | 0 |")


def test_verdicts_under_a_reading_say_so() -> None:
    word = beside_the_configuration("tables").word
    reading = {"text": "More regions (read: than on a line).", "where": "figure 1"}
    assert word({**reading, "holds": True}) == "holds under this reading"
    assert word({**reading, "holds": False}) == "does not hold" and word({**reading, "holds": None}) == "undecided"
    assert word({"text": "Threads spread already.", "where": "section 2", "holds": True}) == "holds"


def test_every_verdict_can_be_traced_to_a_claim_of_a_study() -> None:
    """Each committed file is of a study as it stands now: its version, its claims in their words, and our numbers."""
    studies, seen = all_studies(), set()
    for file in sorted((ROOT / "docs" / "findings").glob("*.json")):
        held = json.loads(file.read_text(encoding="utf-8"))
        origin = held["provenance"]
        study = studies[origin["study"]]
        seen.add(study.name)
        other = beside_the_configuration("tables").variant(held)
        assert file.stem == "-".join(filter(None, (study.name, origin["scale"], other))), file
        assert origin["study_version"] == study.version, file
        assert origin["tasks"] == len(study.tasks(origin["scale"], origin["options"])), file
        assert [(v["claim"], v["text"], v["where"]) for v in held["verdicts"]] == [
            (claim.name, claim.text, claim.where) for claim in study.claims
        ], file
        assert all(v["ours"] and v["where"] for v in held["verdicts"]), file
    assert seen == set(studies)


def test_every_theorem_names_tests_that_exist() -> None:
    file = ROOT / "docs" / "theorems.toml"
    papers = {study.paper for study in all_studies().values()}
    for one in tomllib.loads(file.read_text(encoding="utf-8"))["theorem"]:
        assert one["paper"] in papers and one["words"] and one["where"] and one["ours"] and one["tests"]
        assert one["verdict"] in ("holds", "holds under this reading", "does not hold")
        for test in one["tests"]:
            path, name = test.split("::")
            assert f"\ndef {name}(" in (ROOT / path).read_text(encoding="utf-8"), test
    page = beside_the_configuration("tables").theorems(file)
    assert "`tests/geometry/folds/test_fold_set.py::test_lemma_3_needs_edges_that_bend`" in page


def test_stub_of_the_pictures_says_what_the_table_says() -> None:
    stub = (ROOT / "src" / "fiberscope" / "plot" / "__init__.pyi").read_text(encoding="utf-8")
    found = {name: module for module, name in re.findall(r"^from \.(\w+) import (\w+) as \2$", stub, re.MULTILINE)}
    assert found == fs.plot._NAMES
