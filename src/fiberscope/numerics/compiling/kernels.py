"""How loops are compiled: by Numba when they are first called, or before, into an extension that needs no Numba.

Compilation is paid by the first call of a user, and it is proportional to the number of statements. So nothing is
compiled that Python does not need: what only other kernels call has no wrapper and no cache of its own, kernels
allocate nothing, assign no slices and hand on few tuples. Even where everything is in Numba's cache already, importing
Numba and what it needs to read that cache takes half a second. So a kernel is only marked here. When it is called, it
looks for an extension, and asks Numba if there is none, or none for such arguments.

``fiberscope compile`` writes two files into the folder of the package: the extension, and a listing that says what it
was made of and for: the sources of all kernels and of what they import, by their hashes, the interpreter, NumPy and the
machine, the extension's own hash, and for every kernel which kinds of arguments it takes. If anything differs, the
extension is not loaded and Numba compiles as if it were not there; so it is when ``FIBERSCOPE_KERNELS`` is ``numba``.
``fiberscope compile --status`` says which of these it is. A wheel may have both files, too: ``hatch_build.py``.
"""

from __future__ import annotations

import json
import os
import platform
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import cache, update_wrapper
from hashlib import file_digest
from importlib import import_module
from importlib.machinery import EXTENSION_SUFFIXES, ExtensionFileLoader
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import NoneType
from typing import Any

import numpy as np

FOLDER = Path(__file__).resolve().parents[2]
"""The package, where extension and listing are kept."""

LISTING = "compiled.json"
SWITCH = "FIBERSCOPE_KERNELS"

_OPEN: list[tuple[ExitStack, list[float]]] = []
"""Who wants to know how long compilation takes; see :func:`compile_times`."""

_SCALARS: dict[type, str] = {float: "float64", int: "int64", bool: "bool", np.bool_: "bool", NoneType: "none"}
_SCALARS |= {np.dtype(code).type: np.dtype(code).name for code in "bBhHiIlLfd"}

_MOST = 1 << 63
"""Integers below this, and not below its negative, are ``int64``."""

_CONTIGUOUS, _FORTRAN, _FLAGS = 0x1, 0x2, 0x503
"""Of the flags of an array, whether its rows or columns lie in order; with these two, alignment and writability."""


MARKED: list[Kernel] = []
"""All kernels of the modules that are loaded."""


SETTLED: set[str] = set()
"""Modules that were loaded for what is compiled."""


class Kernel:
    """A compiled function, made when it is first needed; other kernels may call it as if it were Numba's."""

    def __init__(self, function: Callable[..., Any], **options: Any) -> None:
        update_wrapper(self, function)
        self.py_func, self.targetoptions = function, options
        self.key = f"{function.__module__}:{function.__qualname__}"
        self._ready: dict[Any, Callable[..., Any]] | None = None
        self._numba: Any = None
        MARKED.append(self)

    def __reduce__(self) -> str:
        return self.py_func.__qualname__

    def __call__(self, *arguments: Any) -> Any:
        if self._ready is None:
            self._ready = functions(self.key)
        if self._ready:
            found = self._ready.get(tuple([kind(x) for x in arguments]))
            if found is not None:
                return found(*arguments)
        return self.dispatcher(*arguments)

    @property
    def is_asked(self) -> bool:
        """Whether Numba has been asked for it."""
        return self._numba is not None

    @property
    def dispatcher(self) -> Any:
        """The function as Numba has it."""
        if self._numba is None:
            Later.settle(self.py_func.__globals__)
            self._numba = numba().njit(**self.targetoptions)(self.py_func)
        return self._numba

    @property
    def _numba_type_(self) -> Any:
        """What Numba takes this for, inside of other kernels."""
        return self.dispatcher._numba_type_


class Later:
    """Something of a module that loads Numba: an operation of kernels, put in its place when one is compiled."""

    def __init__(self, module: str, name: str) -> None:
        self.module, self.name = module, name

    @staticmethod
    def settle(names: dict[str, Any]) -> None:
        """Put what is to come in its place among the names of a module."""
        for name, value in list(names.items()):
            if isinstance(value, Later):
                SETTLED.add(value.module)
                names[name] = getattr(import_module(value.module), value.name)

    def __call__(self, *arguments: Any) -> Any:
        raise TypeError(f"{self.name}: an operation of kernels alone")


def kind(x: Any) -> Any:
    """What a compiled function asks of an argument; equal for arguments that it treats alike, None for all others.

    >>> kind(np.zeros((2, 3))) == kind(np.ones((5, 1))) != kind(np.zeros((3, 2)).T)
    True
    >>> kind(1.0), kind(True), kind((1, 2**63)), kind("text")
    ('float64', 'bool', ('int64', None), None)
    """
    if type(x) is np.ndarray:
        flags = x.flags.num & _FLAGS
        return x.dtype, x.ndim, flags & ~_FORTRAN if flags & _CONTIGUOUS else flags
    if type(x) is tuple:
        return tuple([kind(part) for part in x])
    if type(x) is int and not -_MOST <= x < _MOST:
        return None
    return _SCALARS.get(type(x))


def numba() -> Any:
    """The library, loaded when something has to be compiled."""
    library = import_module("numba")
    while _OPEN:
        _listen(*_OPEN.pop())
    return library


def _marked(**options: Any) -> Callable[[Callable[..., Any]], Any]:
    def mark(function: Callable[..., Any]) -> Kernel:
        return Kernel(function, **options)

    return mark


kernel = _marked(cache=True, nogil=True, error_model="numpy", no_cfunc_wrapper=True)
"""A function that Python calls."""

strict = _marked(cache=True, nogil=True)
"""A function that Python calls, which divides as Python does: by zero is an error."""

sums = _marked(cache=True, nogil=True, no_cfunc_wrapper=True, fastmath={"reassoc", "contract"})
"""A function that Python calls, whose sums may be taken in any order."""

inner = _marked(nogil=True, error_model="numpy", no_cfunc_wrapper=True, no_cpython_wrapper=True)
"""A function that only kernels call."""

_BARE: dict[str, Any] = {"nogil": True, "error_model": "numpy", "no_cfunc_wrapper": True, "_nrt": False}

bare = _marked(cache=True, **_BARE)
"""As :data:`kernel`, for functions that make no array: nobody counts who holds one, which would cost more than short
loops."""

bare_inner = _marked(no_cpython_wrapper=True, **_BARE)
"""As :data:`inner`, for those."""

bare_once = _marked(no_cpython_wrapper=True, inline="always", **_BARE)
"""As :data:`once`, for those: to hand over a dozen arrays costs more than a short loop, too."""

adding = _marked(
    nogil=True, error_model="numpy", no_cfunc_wrapper=True, no_cpython_wrapper=True, fastmath={"reassoc", "contract"}
)
"""A function that only kernels call, whose sums may be taken in any order."""

once = _marked(nogil=True, error_model="numpy", no_cfunc_wrapper=True, no_cpython_wrapper=True, inline="always")
"""A function that is called in one place and calls others: inside its caller they are optimised once less."""

inlined = _marked(cache=True, nogil=True, inline="always")
"""A function of few statements that becomes a part of its callers."""


def threads() -> int:
    """How many threads may run kernels: the processors, or ``NUMBA_NUM_THREADS`` if there are more."""
    count = os.cpu_count() or 1
    asked = os.environ.get("NUMBA_NUM_THREADS", "")
    return max(1, min(int(asked), count)) if asked.isdecimal() else count


@contextmanager
def compile_times() -> Iterator[list[float]]:
    """A list that receives, for every function compiled inside the block, the seconds that it took.

    Functions that others call are compiled inside those, and are not listed again.
    """
    times: list[float] = []
    with ExitStack() as stack:
        _OPEN.append((stack, times))
        if "numba" in sys.modules:
            numba()
        try:
            yield times
        finally:
            _OPEN[:] = [mine for mine in _OPEN if mine[0] is not stack]


def _listen(stack: ExitStack, times: list[float]) -> None:
    stack.enter_context(import_module("numba.core.event").install_timer("numba:compile", times.append))


# -- ahead of time -----------------------------------------------------------------------------------------------------


def surroundings() -> list[str]:
    """What an extension is made for, but for the sources: interpreter and system, machine, NumPy up to its patches."""
    return [EXTENSION_SUFFIXES[0], platform.machine(), ".".join(np.__version__.split(".")[:2])]


def functions(key: str) -> dict[Any, Callable[..., Any]]:
    """The compiled functions of a kernel by the kinds of their arguments; none without an extension that fits."""
    found = extension(FOLDER)
    if found is None:
        return {}
    module, entries = found
    return {_told_kind(kinds): getattr(module, symbol) for kinds, symbol in entries.get(key, ())}


@cache
def extension(folder: Path) -> tuple[Any, dict[str, Any]] | None:
    """The extension in a folder and what it has, if it was made of what is here, for what is here."""
    try:
        return opened(folder)
    except ImportError:
        return None  # whatever is wrong with these files, there is Numba


def opened(folder: Path) -> tuple[Any, dict[str, Any]]:
    """The same, or an error that says why it is not used."""
    if os.environ.get(SWITCH) == "numba":
        raise ImportError(f"{SWITCH} is numba")
    if not (folder / LISTING).is_file():
        raise ImportError(f"there is none in {folder}")
    try:
        listing = json.loads((folder / LISTING).read_text(encoding="utf-8"))
        made_for, sources, path = listing["surroundings"], dict(listing["sources"]), folder / listing["file"]
        if made_for != surroundings():
            raise ImportError(f"it was made for {made_for}, and this is {surroundings()}")
        for name, told in sources.items():
            if not (FOLDER / name).is_file() or _digest(FOLDER / name) != told:
                raise ImportError(f"{name} is not what it was made of")
        if _digest(path) != listing["digest"]:
            raise ImportError(f"{path.name} is damaged")
        return _loaded(path), dict(listing["entries"])
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        raise ImportError(f"{LISTING} and what it names are damaged: {error!r}") from error


def _digest(path: Path) -> str:
    with path.open("rb") as stream:
        return file_digest(stream, "sha256").hexdigest()


def _loaded(path: Path) -> Any:
    name = path.name.split(".")[0]
    spec = spec_from_file_location(name, path, loader=ExtensionFileLoader(name, str(path)))
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _told_kind(told: Any) -> Any:
    """A kind of arguments from the listing, as :func:`kind` has it."""
    match told:
        case [str(dtype), int(ndim), int(flags)]:
            return np.dtype(dtype), ndim, flags
        case list():
            return tuple(_told_kind(part) for part in told)
    return told
