"""An extension of kernels, made by Numba ahead of time.

Which arguments a kernel has is not typed anywhere: small questions are asked with Numba as usual, and what it has
compiled by then is compiled once more, by ``numba.pycc``, into one extension that needs no Numba. It is for every
processor of the machine's kind. Its numbers are those that Numba finds, bit by bit, but for sums that may be taken in
any order.
"""

from __future__ import annotations

import ast
import inspect
import json
import os
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from hashlib import sha256
from importlib import import_module
from pathlib import Path
from typing import Any

from fiberscope.errors import InputError
from fiberscope.files import sha256_of, write_atomically
from fiberscope.numerics.compiling.kernels import FOLDER, LISTING, MARKED, SETTLED, SWITCH, Kernel, numba, surroundings

PREFIX = "compiled_"


def build(ask: Callable[[], None], folder: Path = FOLDER) -> tuple[Path, int]:
    """Make the extension of all kernels that ``ask()`` needs, in a process in which none was called before.

    Returns its file and how many functions it has.
    """
    os.environ[SWITCH] = "numba"
    ask()
    entries, functions = _recorded()
    sources = {path.relative_to(FOLDER).as_posix(): sha256_of(path) for path in _sources()}
    made_of = json.dumps([surroundings(), sources, entries], sort_keys=True)
    name = PREFIX + sha256(made_of.encode()).hexdigest()[:16]
    try:
        path = _compiled(name, functions, folder)
    except Exception as error:  # whatever stands behind: compilers, linkers, a folder of others
        raise InputError(f"compile: expected a C compiler and a folder to write to, {folder}, got {error}") from error
    listing = {"surroundings": surroundings(), "sources": sources, "entries": entries}
    write_atomically(folder / LISTING, json.dumps(listing | {"file": path.name, "digest": sha256_of(path)}))
    remove(folder, keep=path)
    return path, len(functions)


def remove(folder: Path = FOLDER, keep: Path | None = None) -> None:
    """Take away extensions, and with the last one the listing."""
    if keep is None:
        (folder / LISTING).unlink(missing_ok=True)
    for path in folder.glob(PREFIX + "*"):
        if path != keep:
            path.unlink()


def _recorded() -> tuple[dict[str, list[Any]], dict[str, tuple[Kernel, Any]]]:
    """For the listing, kinds of arguments and a symbol for each; for every symbol the kernel and Numba's signature."""
    entries: dict[str, list[Any]] = {}
    functions: dict[str, tuple[Kernel, Any]] = {}
    for kernel in MARKED:
        if not kernel.is_asked or kernel.targetoptions.get("no_cpython_wrapper"):
            continue
        for found in kernel.dispatcher.overloads.values():
            kinds = [_kind(x) for x in found.signature.args]
            if not any(_is_open(x) for x in kinds):
                symbol = f"f{len(functions)}_{kernel.py_func.__name__}"
                functions[symbol] = kernel, found.signature
                entries.setdefault(kernel.key, []).append([kinds, symbol])
    return entries, functions


def _kind(x: Any) -> Any:
    """What :func:`fiberscope.numerics.compiling.kernels.kind` says of arguments of a type of Numba, for the listing."""
    types, as_dtype = numba().types, numba().np.numpy_support.as_dtype
    match x:
        case types.Array():
            flags = {"C": 0x1, "F": 0x2, "A": 0}[x.layout] | 0x100 * x.aligned | 0x400 * x.mutable
            return [as_dtype(x.dtype).str, x.ndim, flags]
        case types.UniTuple() | types.Tuple():
            return [_kind(part) for part in x.types]
        case types.Boolean():
            return "bool"
        case types.Integer() | types.Float() | types.NoneType():
            return str(x)
    return None


def _is_open(kind: Any) -> bool:
    return kind is None or (isinstance(kind, list) and any(_is_open(part) for part in kind))


def _compiled(name: str, functions: dict[str, tuple[Kernel, Any]], folder: Path) -> Path:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that pycc will be replaced one day
        cc = import_module("numba.pycc").CC(name, source_module=__name__)
    cc.output_dir = str(folder)
    for symbol, (kernel, signature) in functions.items():
        cc.export(symbol, signature)(kernel.py_func)
    with _own_options({kernel.py_func: kernel.dispatcher for kernel, _ in functions.values()}):
        cc.compile()
    return folder / str(cc.output_file)


@contextmanager
def _own_options(dispatchers: dict[Any, Any]) -> Iterator[None]:
    """Let pycc compile every function with the options of its own: it has none for one function."""
    compiler: Any = import_module("numba.pycc.compiler")
    usual = compiler.compile_extra

    def with_options(typing: Any, target: Any, function: Any, args: Any, result: Any, flags: Any, **rest: Any) -> Any:
        flags, known = flags.copy(), dispatchers[function]
        known.targetdescr.options.parse_as_flags(flags, known.targetoptions)
        flags.no_compile = flags.no_cfunc_wrapper = True
        return usual(typing, target, function, args, result, flags, **rest)

    compiler.compile_extra = with_options
    try:
        yield
    finally:
        compiler.compile_extra = usual


def _sources() -> list[Path]:
    """The files of all kernels, and what they import of the package, directly or not: constants are compiled in."""
    mine: list[Any] = [sys.modules[name] for name in SETTLED] + [sys.modules[__name__]]
    todo = [Path(inspect.getfile(x)).resolve() for x in [*mine, *(kernel.py_func for kernel in MARKED)]]
    found = set()
    while todo:
        path = todo.pop()
        if path not in found and path.is_relative_to(FOLDER):
            found.add(path)
            todo += _imported(path)
    return sorted(found)


def _imported(path: Path) -> Iterator[Path]:
    """The files of the package that a file imports."""
    names: list[str] = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module:
            names += [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        elif isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
    for name in names:
        package, *rest = name.split(".")
        if package == FOLDER.name:
            place = FOLDER.joinpath(*rest)
            yield from (file for file in (place.with_suffix(".py"), place / "__init__.py") if file.is_file())
