"""The page of a study: every claim of the paper with ours beside it, the figures, the numbers and where they come from.

One self-contained HTML file, made from the study's tables alone; the same results give the same bytes.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from fiberscope.files import write_atomically
from fiberscope.plot.studies import has_rows, study_figure
from fiberscope.plot.style import figure_png
from fiberscope.reporting.page import Mark, Section, render_page
from fiberscope.studies.lab.runner import StudyResult
from fiberscope.studies.lab.study import Study

MOST_ROWS = 200
KINDS = {True: "yes", False: "no", None: "open"}


def write_study_page(result: StudyResult, study: Study) -> Path:
    """Write the figures as PNG files and ``index.html`` into the study's folder; returns the page's path."""
    figures: list[tuple[str, str, bytes]] = []
    for picture in study.pictures:
        if not has_rows(result.table, picture):  # the options left them out, or their tasks failed
            continue
        data = figure_png(study_figure(result.table, picture)[0])
        write_atomically(result.folder / f"{picture.name}.png", data)
        figures.append((picture.title, picture.caption, data))
    page = result.folder / "index.html"
    write_atomically(page, render_study_page(result, study, figures))
    return page


def write_index(folder: Path, done: Sequence[tuple[StudyResult, Study]], failed: Mapping[str, str]) -> Path:
    """Write ``index.html`` with every claim, verdict and figure of several studies; returns its path."""
    verdicts = [verdict.word for result, _ in done for verdict in result.verdicts]
    cards = [("studies", str(len(done))), ("claims", str(len(verdicts)))]
    cards += [(word, str(verdicts.count(word))) for word in ("holds", "does not hold", "undecided")]
    sections = [_of_study(folder, result, study) for result, study in done]
    if failed:
        sections.append(Section("Not run", rows=list(failed.items()), head=("Study", "Why")))
    page = folder / "index.html"
    title, subtitle = "Every study", "The papers' claims with ours beside them, the figures, and where the numbers are."
    write_atomically(page, render_page(title, subtitle, sections, cards=cards))
    return page


def _of_study(folder: Path, result: StudyResult, study: Study) -> Section:
    claims = [(Mark(v.text, v.where), v.ours, Mark(v.word, kind=KINDS[v.holds])) for v in result.verdicts]
    drawn = [(p, result.folder / f"{p.name}.png") for p in study.pictures]
    where = escape(f"{result.folder.relative_to(folder)}/index.html")
    failures = ""
    if result.failures:
        failures = f" {len(result.failures)} tasks failed and the table lacks their rows: {result.failures[0].error}"
    return Section(
        study.title,
        _verdicts_in_words(result),
        text=f"{study.paper}: {study.figure}. Scale: {result.scale}, {len(result.table)} rows.{failures}",
        rows=claims,
        head=("The paper", "Ours", "Verdict"),
        figures=[(f"{p.title}. {p.caption}", file.read_bytes()) for p, file in drawn if file.is_file()],
        wide=True,
        open=bool(result.failures),
        widget=f'<p><a href="{where}">All numbers of {escape(study.name)}</a></p>',
    )


def _verdicts_in_words(result: StudyResult) -> str:
    """How the claims ended, for the list at the top of the page."""
    words = [verdict.word for verdict in result.verdicts]
    counts = ", ".join(f"{words.count(word)} {word}" for word in dict.fromkeys(words)) or "no claims"
    lost = f"; {len(result.failures)} of {result.provenance['tasks']} tasks failed" if result.failures else ""
    return f"{len(words)} claims: {counts}{lost}."


def render_study_page(result: StudyResult, study: Study, figures: Sequence[tuple[str, str, bytes]] = ()) -> str:
    """The page as HTML; ``figures`` are titles, captions and PNG bytes."""
    subtitle = f"{study.paper}: {study.figure}. Scale: {result.scale}."
    footer = "All rows: table.csv and table.json beside this page. Every task has its own seed, in its file."
    return render_page(study.title, subtitle, list(_sections(result, figures)), footer)


def _sections(result: StudyResult, figures: Sequence[tuple[str, str, bytes]]) -> Iterator[Section]:
    claims = [(Mark(v.text, v.where, name=v.claim), v.ours, Mark(v.word, kind=KINDS[v.holds])) for v in result.verdicts]
    yield Section("The paper's claims, and ours", rows=claims, head=("The paper", "Ours", "Verdict"))
    if result.failures:
        lost = [(str(dict(failure.settings)), failure.error) for failure in result.failures]
        yield Section("Tasks that failed: the table lacks their rows", rows=lost, head=("Task", "Error"))
    if figures:
        shown = [(f"{title}. {caption}", data) for title, caption, data in figures]
        yield Section("Figures", figures=shown, wide=True)
    hidden = len(result.summary) - MOST_ROWS
    yield Section(
        "The numbers",
        text=f"{hidden} more rows in summary.csv." if hidden > 0 else "",
        rows=[[_cell(value) for value in row] for row in result.summary.rows[:MOST_ROWS]],
        head=[name.replace("_", " ") for name in result.summary.columns],
    )
    yield Section("Where they come from", rows=_provenance(result))


def _provenance(result: StudyResult) -> list[tuple[str, str]]:
    shown = [(key, value) for key, value in result.provenance.items() if key != "missing"]
    return [(key.replace("_", " "), value if isinstance(value, str) else json.dumps(value)) for key, value in shown]


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.4g}"
    return str(value)
