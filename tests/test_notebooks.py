"""The notebooks run from the first cell to the last, in a fresh kernel, as somebody would run them."""

from __future__ import annotations

from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

NOTEBOOKS = Path(__file__).resolve().parent.parent / "examples" / "notebooks"


def test_there_is_one_for_every_kind_of_user() -> None:
    assert {path.stem for path in NOTEBOOKS.glob("*.ipynb")} == {"theorist", "auditor", "teacher"}


@pytest.mark.parametrize("name", ["theorist", "auditor", "teacher"])
def test_notebook_runs(name: str, tmp_path: Path) -> None:
    book = nbformat.read(NOTEBOOKS / f"{name}.ipynb", as_version=4)
    assert not any(cell.get("outputs") for cell in book.cells), "clear the outputs before you commit"
    NotebookClient(book, timeout=300, resources={"metadata": {"path": str(tmp_path)}}).execute()
    pictures = [out for cell in book.cells for out in cell.get("outputs", ()) if "image/png" in out.get("data", {})]
    assert len(pictures) >= 1
    assert not [out for cell in book.cells for out in cell.get("outputs", ()) if out.get("name") == "stderr"]
