"""One self-contained HTML page: text, tables and pictures in one file, nothing fetched from anywhere."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from jinja2 import Environment

from fiberscope import __version__
from fiberscope.errors import InputError
from fiberscope.files import write_atomically


@dataclass(frozen=True, slots=True)
class Mark:
    """A cell that says more than its text: a soft ``note`` behind it, a colour for *yes*, *no* and *open*, a name for
    links.
    """

    text: str
    note: str = ""
    kind: str = ""
    name: str = ""


@dataclass(frozen=True, slots=True)
class Section:
    """One stop of a page: a question, its answer in a sentence, rows of evidence, and pictures as PNG bytes.

    ``head`` names the columns of the rows; without it the first cell of a row is the name of the others. ``wide``
    pictures have several panels and stand below each other.
    """

    title: str
    answer: str = ""
    text: str = ""
    rows: Sequence[Sequence[str | Mark]] = ()
    figures: Sequence[tuple[str, bytes]] = field(default=(), repr=False)
    head: Sequence[str] = ()
    wide: bool = False


def render_page(title: str, subtitle: str, sections: Sequence[Section], footer: str = "") -> str:
    """The page as a string of HTML."""
    environment = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    environment.filters["inline"] = lambda data: "data:image/png;base64," + b64encode(data).decode()
    environment.filters["mark"] = lambda cell: cell if isinstance(cell, Mark) else Mark(cell)
    footer = footer or f"Made by fiberscope {__version__}."
    return environment.from_string(_PAGE).render(
        title=title, subtitle=subtitle, sections=sections, footer=footer, style=_STYLE
    )


def write_page(folder: Path, title: str, subtitle: str, sections: Sequence[Section]) -> Path:
    """Write ``index.html`` and every picture as a PNG of its own into ``folder``; returns the path of the page."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{folder}: cannot be made a folder ({error.strerror})") from error
    for number, section in enumerate(sections, start=1):
        for index, (_, data) in enumerate(section.figures):
            suffix = "" if len(section.figures) == 1 else f"-{index + 1}"
            write_atomically(folder / f"{number:02}-{_slug(section.title)}{suffix}.png", data)
    page = folder / "index.html"
    write_atomically(page, render_page(title, subtitle, sections))
    return page


def _slug(title: str) -> str:
    words = "".join(c if c.isalnum() else " " for c in title.lower()).split()
    return "-".join(words[:6])


_STYLE = """
:root { --ink: #1f2430; --paper: #fbfaf7; --soft: #6b7280; --line: #e5e1d8; --accent: #d1495b; --deep: #22577a;
  --yes: #2a7d4f; --no: #b3263c; --open: #8a6d1a }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e8e6e1; --paper: #171a21; --soft: #9aa3b2; --line: #2b303b; --accent: #f28482; --deep: #7fc8d9;
    --yes: #7bd3a2; --no: #f28482; --open: #e3c567 } }
* { box-sizing: border-box }
body { margin: 0; background: var(--paper); color: var(--ink);
  font: 17px/1.55 ui-sans-serif, system-ui, -apple-system, "Segoe UI", sans-serif }
main { max-width: 60rem; margin: 0 auto; padding: 3.5rem 1.25rem 4rem }
h1 { font-size: 2.6rem; line-height: 1.1; margin: 0 0 .4rem; letter-spacing: -.02em }
.subtitle { color: var(--soft); font-size: 1.15rem; margin: 0 0 2.5rem; max-width: 44rem }
nav { display: flex; flex-wrap: wrap; gap: .4rem; margin: 0 0 2rem }
nav a { border: 1px solid var(--line); border-radius: 1rem; padding: .15rem .8rem; font-size: .9rem;
  color: var(--deep); text-decoration: none }
nav a:hover { border-color: var(--deep) }
section { border-top: 1px solid var(--line); padding: 2rem 0 }
.number { color: var(--accent); font-weight: 700; margin-right: .5rem }
h2 { font-size: 1.45rem; margin: 0 0 .5rem; letter-spacing: -.01em }
.answer { font-size: 1.15rem; color: var(--deep); font-weight: 600; margin: 0 0 .75rem }
.text { max-width: 46rem; margin: 0 0 1rem }
.scroll { overflow-x: auto }
table { border-collapse: collapse; font-size: .95rem; margin: .5rem 0 1rem; font-variant-numeric: tabular-nums }
th { text-align: left; font-weight: 400; color: var(--soft) }
th, td { padding: .25rem 1.5rem .25rem 0; border-bottom: 1px solid var(--line); vertical-align: top }
.note { color: var(--soft) }
.yes, .no, .open { font-weight: 700; white-space: nowrap }
.yes { color: var(--yes) } .no { color: var(--no) } .open { color: var(--open) }
figure { margin: 1rem 0 0 }
figure img { width: 100%; height: auto; border-radius: .5rem; display: block }
figcaption { color: var(--soft); font-size: .9rem; margin-top: .4rem }
.figures { display: grid; grid-template-columns: repeat(auto-fit, minmax(20rem, 1fr)); gap: 1rem }
.figures:has(figure:only-child) { grid-template-columns: minmax(0, 38rem) }
.figures.wide { grid-template-columns: minmax(0, 1fr) }
footer { border-top: 1px solid var(--line); color: var(--soft); font-size: .9rem; padding-top: 1rem }
"""

_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{{ title }}</title>
<style>{{ style|safe }}</style>
</head>
<body>
<main>
<h1>{{ title }}</h1>
<p class="subtitle">{{ subtitle }}</p>
<nav>
{% for section in sections %}
<a href="#stop-{{ loop.index }}">{{ section.title }}</a>
{% endfor %}
</nav>
{% for section in sections %}
<section id="stop-{{ loop.index }}">
<h2><span class="number">{{ loop.index }}</span>{{ section.title }}</h2>
{% if section.answer %}<p class="answer">{{ section.answer }}</p>{% endif %}
{% if section.text %}<p class="text">{{ section.text }}</p>{% endif %}
{% if section.rows %}
<div class="scroll">
<table>
{% if section.head %}
<tr>{% for name in section.head %}<th scope="col">{{ name }}</th>{% endfor %}</tr>
{% endif %}
{% for row in section.rows %}
<tr>
{%- for cell in row|map("mark") -%}
{% set named = loop.first and not section.head %}
<{{ 'th scope="row"'|safe if named else "td" }}{% if cell.name %} id="{{ cell.name }}"{% endif -%}
{% if cell.kind %} class="{{ cell.kind }}"{% endif %}>{{ cell.text }}
{%- if cell.note %} <span class="note">({{ cell.note }})</span>{% endif %}</{{ "th" if named else "td" }}>
{%- endfor -%}
</tr>
{% endfor %}
</table>
</div>
{% endif %}
{% if section.figures %}
<div class="figures{{ " wide" if section.wide }}">
{% for caption, data in section.figures %}
<figure><img alt="{{ caption }}" src="{{ data|inline }}"><figcaption>{{ caption }}</figcaption></figure>
{% endfor %}
</div>
{% endif %}
</section>
{% endfor %}
<footer>{{ footer }}</footer>
</main>
</body>
</html>
"""
