"""Pages are one file, escaped, with their pictures inside."""

from __future__ import annotations

import re

import pytest

from fiberscope.errors import InputError
from fiberscope.plot.style import figure_png, new_axes
from fiberscope.reporting.page import Mark, Section, render_page, write_page


def picture() -> bytes:
    ax = new_axes(size=(1, 1))
    ax.plot([0, 1], [0, 1])
    return figure_png(ax)


def test_nothing_is_fetched_and_everything_is_escaped():
    page = render_page("T", "S", [Section("A <b>?", "x < y & z", "text", [("k", "<i>v</i>")], [("cap", picture())])])
    assert "A &lt;b&gt;?" in page
    assert "x &lt; y &amp; z" in page
    assert "<i>v</i>" not in page
    assert "data:image/png;base64," in page
    assert not re.findall(r"(?:src|href)=\"(?:https?:)?//", page)


def test_writes_the_page_and_every_picture(tmp_path):
    out = tmp_path / "deep" / "folder"
    sections = [Section("One", "a"), Section("Two things", "b", figures=[("c", picture()), ("d", picture())])]
    assert write_page(out, "T", "S", sections) == out / "index.html"
    assert sorted(p.name for p in out.iterdir()) == ["02-two-things-1.png", "02-two-things-2.png", "index.html"]


def test_a_folder_that_cannot_be_made(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot be made a folder"):
        write_page(tmp_path / "file" / "x", "T", "S", [])


def test_rows_have_headers_and_marks():
    named = render_page("T", "S", [Section("A", rows=[("k", "v")])])
    assert '<th scope="row">k</th><td>v</td>' in named
    rows = [("<a>", Mark("no", "figure <1>", "no"))]
    headed = render_page("T", "S", [Section("A", rows=rows, head=("x", "y"))], footer="end & all")
    assert '<th scope="col">x</th>' in headed and '<th scope="row">' not in headed
    assert '<td>&lt;a&gt;</td><td class="no">no <span class="note">(figure &lt;1&gt;)</span></td>' in headed
    assert "end &amp; all" in headed


def test_the_same_picture_is_the_same_file():
    assert picture() == picture()
