"""Sphinx configuration: Markdown pages, the furo theme, the API from docstrings."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

import api_pages  # noqa: E402  (these stand beside this file)
import command_pages  # noqa: E402
import notebook_pages  # noqa: E402
import tables  # noqa: E402

import fiberscope  # noqa: E402

project = "fiberscope"
author = "The fiberscope developers"
copyright = author
release = version = fiberscope.__version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
    "sphinxcontrib.bibtex",
    "sphinx_copybutton",
    "sphinx_design",
    "mathml",
]
html_math_renderer = "mathml"
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True

myst_enable_extensions = ["dollarmath", "amsmath", "colon_fence", "deflist"]
myst_heading_anchors = 3
bibtex_bibfiles = ["references.bib"]
exclude_patterns = ["_build", "generated"]  # the tables there are included by pages

autodoc_member_order = "bysource"
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented"
autodoc_preserve_defaults = True
napoleon_google_docstring = False
napoleon_use_rtype = False
python_use_unqualified_type_names = True

html_theme = "furo"
html_title = "fiberscope"
html_static_path = ["_static"]
html_css_files = ["pages.css"]

# Written afresh at every build from the public names, so that no page can forget one.
api_pages.write(HERE / "api" / "generated")
command_pages.write(HERE / "commands" / "generated")
notebook_pages.write(HERE / "tutorials" / "generated")
tables.write(HERE)

# Of the docstring of a constant or attribute, napoleon takes the words before a colon for its type and makes a
# cross-reference of each of them: "zeros: ..." pointed at two methods. Ours are sentences, so they pass it unchanged.
SENTENCES = {"attribute", "data", "property"}


def setup(app: Any) -> None:
    """Put the sentences away before napoleon comes, at priority 500, and back after it."""
    kept: dict[str, list[str]] = {}

    def put_away(app: Any, what: str, name: str, value: Any, options: Any, lines: list[str]) -> None:
        if what in SENTENCES:
            kept[name] = list(lines)

    def put_back(app: Any, what: str, name: str, value: Any, options: Any, lines: list[str]) -> None:
        if what in SENTENCES:
            lines[:] = kept.pop(name)

    app.connect("autodoc-process-docstring", put_away, priority=400)
    app.connect("autodoc-process-docstring", put_back, priority=600)
