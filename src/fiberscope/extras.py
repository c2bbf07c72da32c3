"""Libraries that may be absent: which extra brings each, and one line that says so."""

from __future__ import annotations

import importlib
from types import ModuleType

from fiberscope.errors import MissingExtraError

EXTRAS = {
    "torch": "torch",
    "sklearn": "sklearn",
    "distributed": "dask",
    "starlette": "explore",
    "uvicorn": "explore",
    "websockets": "explore",
    "ray": "ray",
    "transformers": "hf",
    "hypothesis": "testing",
    "gudhi": "topology",
}
"""For every library that the package can do without, the extra that installs it."""


def import_module(name: str, asked: str = "this") -> ModuleType:
    """As ``importlib.import_module``, but a library that an extra brings is named together with the extra.

    ``asked`` is what the user asked for, the subject of that sentence.

    >>> import_module("fiberscope.errors").__name__
    'fiberscope.errors'
    """
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        library = (error.name or "").split(".")[0]
        if library not in EXTRAS:
            raise
        how = f"pip install fiberscope[{EXTRAS[library]}]"
        raise MissingExtraError(f"{asked} needs {library}, which is not installed: {how}") from error
