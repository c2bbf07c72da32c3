"""The package's own styles and scripts, as text."""

from __future__ import annotations

from functools import cache
from importlib.resources import files

SCRIPTS = ("colours.js", "frames.js", "painters.js", "widget.js", "solid.js", "start.js")


@cache
def script() -> str:
    """The explorer's script, from its parts."""
    return "(() => {\n" + '"use strict";\n' + "\n".join(asset(name) for name in SCRIPTS) + "})();\n"


@cache
def asset(name: str) -> str:
    """A file of the package's own."""
    return (files("fiberscope.explorer") / "static" / name).read_text(encoding="utf-8")
