"""Write a page for every notebook in ``examples/notebooks``, so that text and code have one source."""

from __future__ import annotations

import json
from pathlib import Path

NOTEBOOKS = Path(__file__).resolve().parent.parent / "examples" / "notebooks"
NOTE = (
    "This page is the notebook `examples/notebooks/{name}.ipynb`, which the tests run; open it in Jupyter to see the "
    "pictures and to change things."
)


def page(name: str, cells: list[dict[str, object]]) -> str:
    """The Markdown of one notebook; what a notebook's Markdown links to stands two folders up."""
    parts = []
    for cell in cells:
        source = cell["source"]
        text = "".join(source) if isinstance(source, list) else str(source)
        parts.append(text if cell["cell_type"] == "markdown" else f"```{{code-block}} python\n{text}\n```")
        if len(parts) == 1:
            parts.append(f"```{{note}}\n{NOTE.format(name=name)}\n```")
    return "\n\n".join(parts) + "\n"


def write(folder: Path) -> None:
    """Write the pages; a page whose text did not change keeps its date."""
    folder.mkdir(parents=True, exist_ok=True)
    for notebook in sorted(NOTEBOOKS.glob("*.ipynb")):
        text = page(notebook.stem, json.loads(notebook.read_text(encoding="utf-8"))["cells"])
        file = folder / f"{notebook.stem}.md"
        if not file.exists() or file.read_text(encoding="utf-8") != text:
            file.write_text(text, encoding="utf-8")
