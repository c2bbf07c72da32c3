"""One self-contained HTML page: text, tables and pictures in one file, nothing fetched from anywhere."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

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
    pictures have several panels and stand below each other. ``call`` is the line of code that gives the answer,
    ``evidence`` why it can be believed, ``seconds`` how long it took, ``open`` an answer that was not given.
    ``widget`` is HTML of our own, put in as it is, ``data`` the answer for machines, ``files`` what a reader can save:
    name and content.
    """

    title: str
    answer: str = ""
    text: str = ""
    rows: Sequence[Sequence[str | Mark]] = ()
    figures: Sequence[tuple[str, bytes]] = field(default=(), repr=False)
    head: Sequence[str] = ()
    wide: bool = False
    call: str = ""
    evidence: str = ""
    seconds: float | None = None
    open: bool = False
    widget: str = field(default="", repr=False)
    data: Any = field(default=None, repr=False)
    files: Sequence[tuple[str, bytes]] = field(default=(), repr=False)


def render_page(
    title: str,
    subtitle: str,
    sections: Sequence[Section],
    footer: str = "",
    cards: Sequence[tuple[str, str]] = (),
    data: Any = None,
) -> str:
    """The page as a string of HTML; ``cards`` are short facts at its top, ``data`` is embedded for machines."""
    environment = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    environment.filters["inline"] = lambda data: "data:image/png;base64," + b64encode(data).decode()
    environment.filters["saved"] = lambda data: "data:application/json;base64," + b64encode(data).decode()
    environment.filters["mark"] = lambda cell: cell if isinstance(cell, Mark) else Mark(cell)
    environment.filters["seconds"] = duration
    footer = footer or f"Made by fiberscope {__version__}."
    return environment.from_string(_PAGE).render(
        title=title, subtitle=subtitle, sections=sections, footer=footer, style=STYLE, cards=cards,
        data="" if data is None else json.dumps(data, allow_nan=False).replace("<", "\\u003c"),
        copies=_COPY if any(section.call for section in sections) else "",
    )  # fmt: skip


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


def duration(seconds: float) -> str:
    """A time in words.

    >>> duration(0.0123), duration(4.56), duration(0.0001)
    ('12 ms', '4.6 s', '0.1 ms')
    """
    if seconds < 1:
        return f"{1000 * seconds:.0f} ms" if seconds >= 0.01 else f"{1000 * seconds:.1f} ms"
    return f"{seconds:.1f} s"


def _slug(title: str) -> str:
    words = "".join(c if c.isalnum() else " " for c in title.lower()).split()
    return "-".join(words[:6])


STYLE = """
:root { --ink: #1f2430; --paper: #fbfaf7; --soft: #6b7280; --line: #e5e1d8; --accent: #c23b4e; --deep: #22577a;
  --yes: #2a7d4f; --no: #b3263c; --open: #8a6d1a }
@media screen and (prefers-color-scheme: dark) {
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
figure img { max-width: 100%; height: auto; border-radius: .5rem; display: block }
figcaption { color: var(--soft); font-size: .9rem; margin-top: .4rem }
.figures { display: grid; grid-template-columns: repeat(auto-fit, minmax(20rem, 1fr)); gap: 1rem }
.figures:has(figure:only-child) { grid-template-columns: minmax(0, 38rem) }
.figures.wide { grid-template-columns: minmax(0, 1fr) }
footer { border-top: 1px solid var(--line); color: var(--soft); font-size: .9rem; padding-top: 1rem }
.cards { display: grid; grid-template-columns: repeat(auto-fit, minmax(9.5rem, 1fr)); gap: .75rem; margin: 0 0 2rem }
.card { border: 1px solid var(--line); border-radius: .6rem; padding: .6rem .9rem; min-width: 0 }
.card dt { color: var(--soft); font-size: .85rem } .card dd { margin: 0; font-size: 1.15rem; font-weight: 600;
  overflow-wrap: anywhere }
.unasked { color: var(--open) }
.glance { display: block; border: 1px solid var(--line); border-radius: .6rem; padding: .4rem .9rem; margin: 0 0 2rem }
.glance ol { list-style: none; margin: 0; padding: 0 }
.glance li { display: grid; grid-template-columns: 1.2rem minmax(11rem, 19rem) 1fr; gap: 0 .6rem; padding: .35rem 0;
  border-bottom: 1px solid var(--line) }
.glance li:last-child { border-bottom: 0 }
.glance li::before { content: "\\25cf"; color: var(--yes) }
.glance li.left::before { content: "\\25cb"; color: var(--open) }
.glance a { border: 0; padding: 0; font-size: 1rem } .glance a:hover { text-decoration: underline }
.glance span { font-size: .95rem; overflow-wrap: anywhere }
.glance .left span { color: var(--open) }
.strips { display: grid; gap: .5rem; margin: 0 0 .6rem } .strips svg { max-width: 100%; height: auto; display: block }
.strips .key { display: flex; flex-wrap: wrap; gap: .2rem 1.1rem; color: var(--soft); font-size: .9rem }
.strips .key i { display: inline-block; width: .75rem; height: .75rem; border-radius: 2px; margin-right: .35rem;
  background: var(--k) }
.file { color: var(--deep) }
.call { display: flex; gap: .6rem; align-items: flex-start; margin: 1rem 0 .3rem; border: 1px solid var(--line);
  border-radius: .5rem; padding: .5rem .7rem }
.call pre { margin: 0; flex: 1; min-width: 0; white-space: pre-wrap; overflow-wrap: anywhere;
  font: .85rem/1.5 ui-monospace, SFMono-Regular, Menlo, monospace }
.call button { font: inherit; font-size: .8rem; color: var(--deep); background: none; border: 1px solid var(--line);
  border-radius: .4rem; cursor: pointer; padding: .1rem .6rem }
.call button:focus-visible, nav a:focus-visible, .file:focus-visible { outline: 3px solid var(--deep);
  outline-offset: 1px }
.proof { color: var(--soft); font-size: .9rem; margin: 0 0 .5rem }
.widget { margin: 1rem 0 }
@media (max-width: 40rem) { main { padding-top: 2rem } h1 { font-size: 1.9rem } }
@media (max-width: 40rem) { .glance li { grid-template-columns: 1.2rem 1fr } .glance span { grid-column: 2 } }
@media print { nav:not(.glance), .call button, .file { display: none } body { background: none; font-size: 11pt }
  h2, .answer { break-after: avoid } figure, tr, .call, .widget svg, .card { break-inside: avoid }
  main { max-width: none; padding: 0 } section { padding: 1rem 0 } }
"""

_COPY = """
document.querySelectorAll(".call button").forEach((button) => button.addEventListener("click", async () => {
  const text = button.parentNode.querySelector("pre").textContent;
  try { await navigator.clipboard.writeText(text); } catch { // not allowed for files in some browsers
    const area = document.createElement("textarea");
    area.value = text; document.body.append(area); area.select(); document.execCommand("copy"); area.remove();
  }
  button.textContent = "copied"; setTimeout(() => { button.textContent = "copy"; }, 1500);
}));
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
{% if cards %}
<dl class="cards">
{% for name, value in cards %}
<div class="card"><dt>{{ name }}</dt><dd>{{ value }}</dd></div>
{% endfor %}
</dl>
{% endif %}
{% if cards %}
<nav class="glance" aria-label="all answers at a glance">
<ol>
{% for section in sections %}
<li class="{{ "asked" if not section.open else "left" }}"><a href="#stop-{{ loop.index }}">{{ section.title }}</a>
<span>{{ section.answer }}</span></li>
{% endfor %}
</ol>
</nav>
{% else %}
<nav aria-label="questions">
{% for section in sections %}
<a href="#stop-{{ loop.index }}">{{ section.title }}</a>
{% endfor %}
</nav>
{% endif %}
{% for section in sections %}
<section id="stop-{{ loop.index }}">
<h2><span class="number">{{ loop.index }}</span>{{ section.title }}</h2>
{% if section.answer %}<p class="answer{{ " unasked" if section.open }}">{{ section.answer }}</p>{% endif %}
{% if section.text %}<p class="text">{{ section.text }}</p>{% endif %}
{% if section.widget %}<div class="widget">{{ section.widget|safe }}</div>{% endif %}
{% if section.rows %}
<div class="scroll" tabindex="0" role="group" aria-label="Table: {{ section.title }}">
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
{% for name, content in section.files %}
<p><a class="file" download="{{ name }}" href="{{ content|saved }}">Save {{ name }}</a></p>
{% endfor %}
{% if section.call %}
<div class="call"><pre>{{ section.call }}</pre>
<button type="button" aria-label="copy the code: {{ section.title }}">copy</button></div>
{% endif %}
{% if section.evidence or section.seconds is not none %}
<p class="proof">{% if section.evidence %}Why: {{ section.evidence }}{% endif %}
{% if section.seconds is not none %} It took {{ section.seconds|seconds }}.{% endif %}</p>
{% endif %}
</section>
{% endfor %}
<footer>{{ footer }}</footer>
</main>
{% if data %}<script type="application/json" id="answers">{{ data|safe }}</script>{% endif %}
{% if copies %}<script>{{ copies|safe }}</script>{% endif %}
</body>
</html>
"""
