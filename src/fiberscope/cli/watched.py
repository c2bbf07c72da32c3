"""A line on standard error that says how far long work has come."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console

from fiberscope.run import Progress


@contextmanager
def watched(first: str = "reading") -> Iterator[Progress]:
    """What to hand on as ``progress=``; the line is gone when the work is done."""
    with Console(stderr=True).status(first) as status:

        def progress(done: int, total: int | None, text: str) -> None:
            status.update(text if total is None else f"{text} ({done} of {total})")

        yield progress
