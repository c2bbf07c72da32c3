"""``fiberscope reproduce``, the page and the figures, all made from a study's tables."""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import laboratory
import pytest
import typer
from matplotlib.backends.backend_agg import FigureCanvasAgg
from typer.testing import CliRunner

from fiberscope.cli.reproduce import reproduce as command
from fiberscope.errors import InputError
from fiberscope.plot.studies import study_figure
from fiberscope.reporting.studies import render_study_page, write_study_page
from fiberscope.studies.initialisation import STUDY
from fiberscope.studies.lab import registry
from fiberscope.studies.lab.progress import human
from fiberscope.studies.lab.runner import StudyInfo, list_studies, reproduce
from fiberscope.studies.lab.study import Picture
from fiberscope.studies.lab.table import Table

SMALL = ["--jobs", "1", "--set", "seeds=3", "--set", "widths=[10]", "--set", "depths=[2, 4]"]

app = typer.Typer()
app.command()(command)


def run(*arguments: str) -> tuple[int, str, BaseException | None]:
    done = CliRunner().invoke(app, list(arguments))
    return done.exit_code, done.stdout, done.exception


def test_runs_writes_a_page_and_resumes(tmp_path: Path) -> None:
    code, text, _ = run("initialisation", *SMALL, "--out", str(tmp_path))
    assert code == 0 and "8 tasks computed, 0 found on disk" in text and "holds" in text
    page = (tmp_path / "index.html").read_text(encoding="utf-8")
    for claim in STUDY.claims:
        assert f'id="{claim.name}"' in page and claim.text.replace("'", "&#39;") in page
    assert page.count("data:image/png;base64,") == len(STUDY.pictures)
    assert "http://" not in page and "https://" not in page and "<script" not in page
    assert (tmp_path / "regions.png").read_bytes().startswith(b"\x89PNG")
    code, text, _ = run("initialisation", *SMALL, "--out", str(tmp_path), "--json")
    result = json.loads(text)
    assert (result["computed"], result["reused"], result["complete"]) == (0, 8, True)
    assert (tmp_path / "index.html").read_text(encoding="utf-8") == page


def _assert_readable(text: str, studies: Sequence[StudyInfo]) -> None:
    """On 80 columns no word, duration or status is cut or broken; columns are where the head puts them."""
    lines = text.splitlines()
    assert max(map(len, lines)) <= 80 and "\u2026" not in text
    (head,) = [line for line in lines if " scale " in line]
    left = " ".join(" ".join(line[: head.index("scale")] for line in lines).split())
    right = "\n".join(" ".join(line[head.index("scale") :].split()) for line in lines)
    for info in studies:
        assert f"{info.name} {info.title} {info.paper}: {info.figure}" in left
        for scale, cost in info.cost.items():
            assert f"{scale} {info.tasks[scale]} {human(cost)} {info.status[scale]}\n" in right


def test_list_is_readable_half_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    half = [
        replace(info, status={scale: f"{n - 1} of {n} tasks" for scale, n in info.tasks.items()})
        for info in list_studies()
    ]
    monkeypatch.setattr("fiberscope.studies.lab.runner.list_studies", lambda: half)
    _assert_readable(run("--list")[1], half)


def test_list_names_paper_figure_cost_and_status(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    code, text, _ = run("--list")
    assert code == 0
    for word in ("initialisation", "Empirical", "figures", "quick", "paper", "not run"):
        assert word in text
    _assert_readable(text, list_studies())
    (info,) = [info for info in json.loads(run("--list", "--json")[1]) if info["name"] == "initialisation"]
    assert info["tasks"]["quick"] == 36 and info["cost"]["paper"] > info["cost"]["quick"]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ([], "expected a name"),
        (["initialization"], "did you mean initialisation"),
        (["initialisation", "--scale", "papr"], "did you mean paper"),
        (["initialisation", "--set", "seds=1"], "did you mean seeds"),
        (["initialisation", "--set", "seeds"], "KEY=VALUE"),
        (["initialisation", "--set", "progress=1"], "option of the study"),
        (["initialisation", "--cluster", "dask://127.0.0.1:9"], "no answer"),
        (["initialisation", "--jobs", "0"], "jobs"),
    ],
)
def test_bad_input_has_a_name(arguments: list[str], text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    _, _, error = run(*arguments)  # the command line as a whole turns it into one line and exit code 2
    assert isinstance(error, InputError) and text in str(error)
    assert list(tmp_path.iterdir()) == []


def test_failed_tasks_give_exit_code_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "trace").mkdir()
    study = laboratory.study(laboratory.failing, 3, "failing")
    monkeypatch.setattr(registry, "all_studies", lambda: {"failing": study})
    code, text, _ = run("failing", "--jobs", "1", "--out", str(tmp_path / "o"), "--set", f"trace={tmp_path / 'trace'}")
    assert code == 1 and "failed twice" in text and "never works" in text
    assert "never works" in (tmp_path / "o" / "index.html").read_text(encoding="utf-8")


def test_page_escapes_what_it_shows(tmp_path: Path) -> None:
    study = laboratory.study(lambda task: [{"index": 0, "word": "<script>alert(1)</script>"}], 1)
    result = reproduce(study, jobs=1, out=tmp_path)
    page = render_study_page(result, study)
    assert "&lt;script&gt;" in page and "<script>" not in page
    assert write_study_page(result, study) == tmp_path / "index.html"


def test_figures_have_a_panel_and_a_line_for_each_entry() -> None:
    rows = [{"x": x, "y": x + s, "l": l, "p": p} for x in (1, 2) for s in (0, 2) for l in "ab" for p in "uvw"]
    axes = study_figure(
        Table.of([*rows, {"x": 1, "y": None, "l": "a", "p": "u"}]), Picture("n", "t", "x", "y", "l", "p")
    )
    assert [ax.get_title() for ax in axes] == ["u", "v", "w"]
    for ax in axes:
        assert [line.get_ydata().tolist() for line in ax.get_lines()] == [[2.0, 3.0], [2.0, 3.0]]  # type: ignore[union-attr]
    with pytest.raises(InputError, match="empty"):
        study_figure(Table((), ()), Picture("n", "t", "x", "y"))
    with pytest.raises(InputError, match="expected one of"):
        study_figure(Table.of(rows), Picture("n", "t", "x", "z"))
    with pytest.raises(InputError, match="expected 3 axes"):
        study_figure(Table.of(rows), Picture("n", "t", "x", "y", "l", "p"), panels=axes[:2])


def test_points_over_names_stand_side_by_side() -> None:
    rows = [{"way": way, "y": k, "kind": kind} for way in ("straight", "bent") for k in (1, 2) for kind in "ab"]
    (ax,) = study_figure(Table.of(rows), Picture("n", "t", "way", "y", lines="kind", style="points"))
    assert [label.get_text() for label in ax.get_xticklabels()] == ["straight", "bent"]


@pytest.mark.parametrize("panels", [1, 3, 4, 5])
def test_figures_can_be_read_on_a_page(panels: int) -> None:
    """Nine inches at most, so that type is not scaled down; labels of ticks beside, not above each other."""
    rows = [
        {"step": step, "value": step * k, "panel": k, "line": f"a line with a long name {line}"}
        for step in (0.00125, 0.0025, 0.005, 0.01, 0.02)
        for k in range(1, panels + 1)
        for line in range(5)
    ]
    axes = study_figure(
        Table.of(rows), Picture("n", "t", "step", "value", lines="line", panels="panel", log_x=True, log_y=True)
    )
    figure = axes[0].get_figure(root=True)
    assert figure is not None
    assert figure.get_figwidth() <= 9.0
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    for ax in axes:
        labels = [label for label in ax.get_xticklabels(which="both") if label.get_text()]
        boxes = sorted((label.get_window_extent() for label in labels), key=lambda box: box.x0)
        assert len(boxes) >= 2
        assert all(a.x1 < b.x0 for a, b in itertools.pairwise(boxes))
