"""Write one API page per package of fiberscope: its public names, then the modules it offers as they are."""

from __future__ import annotations

import importlib
import pkgutil
from pathlib import Path

import fiberscope

# In the house's order. A package without public names and not in MODULES gets no page.
PACKAGES = {
    "errors": "Errors",
    "network": "Networks",
    "numerics": "Numerics",
    "modules": "Torch modules",
    "geometry": "Geometry",
    "dimension": "Functional dimension",
    "fibers": "Fibers",
    "equality": "Equality",
    "neurons": "Neurons",
    "connectivity": "Connectivity",
    "training": "Training",
    "studies": "Studies",
    "plot": "Pictures",
    "explorer": "Explorer",
    "reporting": "Reports",
    "testing": "Testing helpers",
}

# Packages and modules that are documented under their own names besides (or instead of) `fs.<name>`.
MODULES = ("numerics", "testing", "network.nodes", "network.operators")


def public_names(package: str) -> list[str]:
    """Names of the lazy root that come from one package, in the root's order."""
    return [name for name, module in fiberscope._NAMES.items() if module.split(".")[0] == package]


def modules_of(entry: str) -> list[str]:
    """A module, or the public modules of a package; nothing if it does not exist (yet)."""
    name = f"fiberscope.{entry}"
    try:
        module = importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name != name:
            raise  # it exists, and something that it needs does not
        return []
    if not hasattr(module, "__path__"):
        return [name]
    inner = [info.name for info in pkgutil.iter_modules(module.__path__) if not info.name.startswith("_")]
    return [name, *(f"{name}.{module_name}" for module_name in inner)]


def directive(name: str) -> str:
    """The autodoc directive for one public name."""
    value = getattr(fiberscope, name)
    if isinstance(value, type):
        members = "" if issubclass(value, Exception) else "   :members:\n   :special-members: __call__\n"
        return f".. autoclass:: fiberscope.{name}\n{members}   :show-inheritance:\n"
    if callable(value):
        return f".. autofunction:: fiberscope.{name}\n"
    return f".. autodata:: fiberscope.{name}\n"


def page(package: str, title: str) -> str:
    """The reStructuredText of one page, or an empty string if there is nothing to say."""
    parts = [directive(name) for name in public_names(package)]
    entries = [entry for entry in MODULES if entry.split(".")[0] == package]
    for module in [module for entry in entries for module in modules_of(entry)]:
        parts.append(f"{module}\n{'-' * len(module)}\n\n.. automodule:: {module}\n   :members:\n")
    if not parts:
        return ""
    return f"{title}\n{'=' * len(title)}\n\n" + "\n".join(parts)


def write(folder: Path) -> None:
    """Write the pages; a page whose text did not change keeps its date, so Sphinx need not read it again."""
    folder.mkdir(parents=True, exist_ok=True)
    kept = set()
    for package, title in PACKAGES.items():
        text, file = page(package, title), folder / f"{package}.rst"
        if text:
            kept.add(file)
            if not file.exists() or file.read_text(encoding="utf-8") != text:
                file.write_text(text, encoding="utf-8")
    for file in set(folder.glob("*.rst")) - kept:
        file.unlink()
