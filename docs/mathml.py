"""Mathematics as MathML: browsers draw it themselves, so pages need no script and no network.

A formula that the converter does not understand would show its LaTeX; that is a warning, and so an error of the build.
"""

from __future__ import annotations

import re
from typing import Any

from docutils import nodes
from latex2mathml.converter import convert
from sphinx.util import logging

LOGGER = logging.getLogger(__name__)
BARS = {r"\lvert": "|", r"\rvert": "|", r"\lVert": r"\|", r"\rVert": r"\|"}
"""Delimiters that the converter does not know by these names."""


def formula(latex: str, display: str, node: nodes.Node) -> str:
    """One formula as MathML, with its LaTeX for whoever copies it."""
    for bar, plain in BARS.items():
        latex = latex.replace(bar, plain)
    try:
        made = convert(latex.strip(), display=display)
    except Exception as error:  # whatever is wrong, the author wants to know where
        LOGGER.warning("formula %r: %s", latex, error, location=node)
        return f"<code>{latex}</code>"
    left = re.search(r"\\[A-Za-z]+", re.sub(r"<annotation.*?</annotation>", "", made))
    if left:
        LOGGER.warning("formula %r: %s is not understood", latex, left[0], location=node)
    return made


def visit_inline(writer: Any, node: nodes.Element) -> None:
    writer.body.append(formula(node.astext(), "inline", node))
    raise nodes.SkipNode


def visit_block(writer: Any, node: nodes.Element) -> None:
    anchor = f' id="{node["ids"][0]}"' if node["ids"] else ""
    number = f'<span class="eqno">({node["number"]})</span>' if node.get("number") else ""
    writer.body.append(f'<div class="formula"{anchor}>{number}{formula(node.astext(), "block", node)}</div>\n')
    raise nodes.SkipNode


def setup(app: Any) -> dict[str, Any]:
    app.add_html_math_renderer("mathml", (visit_inline, None), (visit_block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
