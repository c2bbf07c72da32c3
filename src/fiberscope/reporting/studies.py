"""The page of a study: every claim of the paper with ours beside it, the figures, the numbers and where they come from.

One self-contained HTML file, made from the study's tables alone; the same results give the same bytes.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment

from fiberscope.files import write_atomically
from fiberscope.plot.studies import has_rows, study_figure
from fiberscope.plot.style import figure_png
from fiberscope.studies.lab.runner import StudyResult
from fiberscope.studies.lab.study import Study
from fiberscope.studies.lab.table import Table


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


def render_study_page(result: StudyResult, study: Study, figures: Sequence[tuple[str, str, bytes]] = ()) -> str:
    """The page as HTML; ``figures`` are titles, captions and PNG bytes."""
    environment = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    environment.filters["inline"] = lambda data: "data:image/png;base64," + b64encode(data).decode()
    environment.filters["cell"] = _cell
    return environment.from_string(_PAGE).render(
        study=study,
        scale=result.scale,
        verdicts=result.verdicts,
        failures=result.failures,
        figures=figures,
        summary=result.summary if len(result.summary) <= MOST_ROWS else _head(result.summary),
        hidden=max(0, len(result.summary) - MOST_ROWS),
        provenance=_provenance(result),
        style=_STYLE,
    )


MOST_ROWS = 200


def _head(table: Table) -> Table:
    return Table(table.columns, table.rows[:MOST_ROWS])


def _provenance(result: StudyResult) -> list[tuple[str, str]]:
    shown = [(key, value) for key, value in result.provenance.items() if key != "missing"]
    return [(key.replace("_", " "), value if isinstance(value, str) else json.dumps(value)) for key, value in shown]


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.4g}"
    return str(value)


_STYLE = """
:root { --ink: #1f2430; --paper: #fbfaf7; --soft: #6b7280; --line: #e5e1d8; --deep: #22577a;
  --yes: #2a7d4f; --no: #b3263c; --open: #8a6d1a }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e8e6e1; --paper: #171a21; --soft: #9aa3b2; --line: #2b303b; --deep: #7fc8d9;
    --yes: #7bd3a2; --no: #f28482; --open: #e3c567 } }
* { box-sizing: border-box }
body { margin: 0; background: var(--paper); color: var(--ink);
  font: 17px/1.55 ui-sans-serif, system-ui, -apple-system, "Segoe UI", sans-serif }
main { max-width: 66rem; margin: 0 auto; padding: 3rem 1.25rem 4rem }
h1 { font-size: 2.2rem; line-height: 1.15; margin: 0 0 .4rem; letter-spacing: -.02em }
h2 { font-size: 1.35rem; margin: 2.5rem 0 .75rem }
.subtitle, figcaption, footer, .where { color: var(--soft) }
.scroll { overflow-x: auto }
table { border-collapse: collapse; width: 100%; font-size: .95rem; font-variant-numeric: tabular-nums }
th { text-align: left; font-weight: 600; color: var(--soft) }
th, td { padding: .35rem 1rem .35rem 0; border-bottom: 1px solid var(--line); vertical-align: top }
.badge { font-weight: 700; white-space: nowrap }
.True { color: var(--yes) } .False { color: var(--no) } .None { color: var(--open) }
figure { margin: 1rem 0 } figure img { width: 100%; height: auto; border-radius: .5rem; display: block }
.failed { color: var(--no) }
"""

_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{{ study.title }}</title>
<style>{{ style|safe }}</style>
</head>
<body>
<main>
<h1>{{ study.title }}</h1>
<p class="subtitle">{{ study.paper }}: {{ study.figure }}. Scale: {{ scale }}.</p>
<h2>The paper's claims, and ours</h2>
<div class="scroll">
<table>
<tr><th>The paper</th><th>Ours</th><th>Verdict</th></tr>
{% for verdict in verdicts %}
<tr id="{{ verdict.claim }}"><td>{{ verdict.text }} <span class="where">({{ verdict.where }})</span></td>
<td>{{ verdict.ours }}</td><td class="badge {{ verdict.holds }}">{{ verdict.word }}</td></tr>
{% endfor %}
</table>
</div>
{% if failures %}
<h2 class="failed">Tasks that failed: the table lacks their rows</h2>
<ul>
{% for failure in failures %}
<li>{{ failure.settings }}: {{ failure.error }}</li>
{% endfor %}
</ul>
{% endif %}
{% if figures %}
<h2>Figures</h2>
{% for title, caption, data in figures %}
<figure><img alt="{{ title }}" src="{{ data|inline }}"><figcaption>{{ title }}. {{ caption }}</figcaption></figure>
{% endfor %}
{% endif %}
<h2>The numbers</h2>
<div class="scroll">
<table>
<tr>{% for name in summary.columns %}<th>{{ name|replace("_", " ") }}</th>{% endfor %}</tr>
{% for row in summary.rows %}
<tr>{% for value in row %}<td>{{ value|cell }}</td>{% endfor %}</tr>
{% endfor %}
</table>
</div>
{% if hidden %}<p class="where">{{ hidden }} more rows in summary.csv.</p>{% endif %}
<h2>Where they come from</h2>
<table>
{% for key, value in provenance %}
<tr><th>{{ key }}</th><td>{{ value }}</td></tr>
{% endfor %}
</table>
<footer><p>All rows: table.csv and table.json beside this page. Every task has its own seed, in its file.</p></footer>
</main>
</body>
</html>
"""
