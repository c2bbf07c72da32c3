"""Write one API page per question: the public names that answer it, then modules that are offered as they are."""

from __future__ import annotations

import importlib
import pkgutil
from pathlib import Path

import fiberscope
import fiberscope.plot

# In the order of a visit: the page's file, its question, and the modules whose public names it has. Of several
# that fit, the longest wins, so that a room can have a page of its own.
QUESTIONS: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("network", "What model is this?", ("network", "numerics")),
    ("regions", "Where is it linear?", ("geometry",)),
    ("curves", "What happens along my data?", ("geometry.curves", "geometry.surfaces")),
    ("distances", "How far is the next boundary?", ("geometry.distances",)),
    ("folds", "What does a function tell about its layers?", ("geometry.folds", "geometry.function")),
    ("expectation", "How many regions are to be expected?", ("geometry.expectation",)),
    ("dimension", "What can the parameters do?", ("dimension",)),
    ("fibers", "Which parameters are one function?", ("fibers",)),
    ("equality", "Are two the same?", ("equality",)),
    ("recovery", "Which parameters, from values alone?", ("recovery",)),
    ("neurons", "Which neuron is which?", ("neurons",)),
    ("connectivity", "Can two trainings be joined?", ("connectivity",)),
    ("modules", "What happens inside a torch module?", ("modules",)),
    ("training", "How does it come about in training?", ("training",)),
    ("studies", "Do a paper's claims hold?", ("studies",)),
    ("plot", "What does it look like?", ()),
    ("pages", "Everything on one page", ("reporting", "explorer")),
    ("errors", "What can go wrong, and how long will it take?", ("errors", "run")),
    ("numerics", "Numerics", ()),
    ("testing", "Helpers for your tests", ()),
)

# Packages and modules that are documented under their own names besides, each on the page of that name.
MODULES = {"network": ("network.nodes", "network.operators"), "numerics": ("numerics",), "testing": ("testing",)}


def page_of(name: str) -> str:
    """The page that a public name stands on."""
    module = fiberscope._NAMES[name]
    fits = [
        (len(start), file) for file, _, starts in QUESTIONS for start in starts if f"{module}.".startswith(f"{start}.")
    ]
    return max(fits)[1]


def modules_of(entry: str) -> list[str]:
    """A module, or a package with its public modules."""
    name = f"fiberscope.{entry}"
    module = importlib.import_module(name)
    if not hasattr(module, "__path__"):
        return [name]
    inner = [info.name for info in pkgutil.iter_modules(module.__path__) if not info.name.startswith("_")]
    return [name, *(f"{name}.{module_name}" for module_name in inner)]


def directive(value: object, name: str) -> str:
    """The autodoc directive for one public name."""
    if isinstance(value, type):
        members = "" if issubclass(value, Exception) else "   :members:\n   :special-members: __call__\n"
        return f".. autoclass:: {name}\n{members}   :show-inheritance:\n"
    if callable(value):
        return f".. autofunction:: {name}\n"
    return f".. autodata:: {name}\n"


def page(file: str, title: str) -> str:
    """The reStructuredText of one page."""
    parts = [
        directive(getattr(fiberscope, name), f"fiberscope.{name}")
        for name in fiberscope._NAMES
        if page_of(name) == file
    ]
    if file == "plot":
        parts.append(
            "Functions of results that return matplotlib axes. A result that has a picture draws it itself with\n"
            "``.plot()``; ``dir(fs.plot)`` lists them all.\n"
        )
        parts += [directive(getattr(fiberscope.plot, n), f"fiberscope.plot.{n}") for n in fiberscope.plot.__all__]
    for module in [module for entry in MODULES.get(file, ()) for module in modules_of(entry)]:
        parts.append(f"{module}\n{'-' * len(module)}\n\n.. automodule:: {module}\n   :members:\n")
    return f"{title}\n{'=' * len(title)}\n\n" + "\n".join(parts)


def write(folder: Path) -> None:
    """Write the pages; a page whose text did not change keeps its date, so Sphinx need not read it again."""
    folder.mkdir(parents=True, exist_ok=True)
    kept = set()
    for stem, title, _ in QUESTIONS:
        text, file = page(stem, title), folder / f"{stem}.rst"
        kept.add(file)
        if not file.exists() or file.read_text(encoding="utf-8") != text:
            file.write_text(text, encoding="utf-8")
    for file in set(folder.glob("*.rst")) - kept:
        file.unlink()
