"""Which data sets there are: a table from names to loaders, and what to say when a name is not in it."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fiberscope.errors import InputError, hint
from fiberscope.training.datasets.dataset import Dataset

Loader = Callable[..., Dataset]


@dataclass(frozen=True, slots=True)
class Entry:
    """A data set that can be loaded: its loader's keyword options are the options of the data set."""

    name: str
    summary: str
    loader: Loader
    needs_files: bool

    @property
    def options(self) -> dict[str, Any]:
        """The options with their defaults."""
        parameters = inspect.signature(self.loader).parameters
        return {name: p.default for name, p in parameters.items() if p.kind is p.KEYWORD_ONLY}


_ENTRIES: dict[str, Entry] = {}


def register_dataset(name: str, summary: str, *, needs_files: bool = False) -> Callable[[Loader], Loader]:
    """Decorator: make a loader known under a name.

    A loader takes keyword options only; one that ``needs_files`` takes the directory first.
    """

    def register(loader: Loader) -> Loader:
        if name in _ENTRIES and _ENTRIES[name].loader is not loader:
            raise InputError(f"data set {name!r}: expected a new name, got one that is taken")
        _ENTRIES[name] = Entry(name, summary, loader, needs_files)
        return loader

    return register


def entries() -> tuple[Entry, ...]:
    """All data sets known now, by name."""
    return tuple(_ENTRIES[name] for name in sorted(_ENTRIES))


def load(name: str, directory: str | Path | None, options: dict[str, Any]) -> Dataset:
    """Look a data set up and load it; unknown names and options are refused with the closest ones."""
    entry = _ENTRIES.get(name)
    if entry is None:
        raise InputError(f"data set: expected one of {', '.join(sorted(_ENTRIES))}, got {name!r}{hint(name, _ENTRIES)}")
    for option in options:
        if option not in entry.options:
            known = ", ".join(entry.options) or "none"
            raise InputError(f"data set {name}: expected options {known}, got {option!r}{hint(option, entry.options)}")
    if entry.needs_files:
        return entry.loader(None if directory is None else Path(directory), **options)
    return entry.loader(**options)
