"""Kernels: which arguments are alike, when an extension is used, and that it says what Numba says."""

from __future__ import annotations

import ast
import json
import os
import pickle
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from fiberscope.geometry.engines.planar.faces import rectify
from fiberscope.numerics.compiling import building, kernels
from fiberscope.numerics.compiling.kernels import Kernel, kind, strict, threads


def _twice(x: Any, y: Any) -> Any:
    return x + y


twice = strict(_twice)
ROWS = np.arange(6.0).reshape(2, 3)


def test_arguments_are_alike_where_numba_takes_them_for_the_same() -> None:
    """The types of Numba are the oracle."""
    typeof = kernels.numba().typeof
    frozen = ROWS.copy()
    frozen.flags.writeable = False
    shifted = np.frombuffer(b"\0" + ROWS.tobytes(), dtype=np.uint8)[1:].view(np.float64)
    arrays = [ROWS, ROWS.T, ROWS[:, :2], ROWS[:1], ROWS[:, :1], ROWS[0], ROWS[0, ::2], frozen, shifted, np.zeros(())]
    arrays += [np.zeros((0, 3)), np.zeros((3, 0)).T, *(ROWS.astype(code) for code in "bBiIlLf?")]
    scalars = [1, 2**62, -(2**63), 1.5, True, np.float64(1), np.int64(1), np.uint64(1), np.int8(1), np.True_, None]
    some = [*arrays, *scalars, (1, 2), (1.0, 2), (ROWS, 1), (1, 2, 3)]
    for x in some:
        for y in some:
            assert (kind(x) == kind(y)) == (typeof(x) == typeof(y)), (x, y)


def test_what_no_kernel_takes_is_like_nothing() -> None:
    assert kind(2**63) is None and kind("x") is None and kind([1]) is None
    assert kind(ROWS.astype(">f8")) != kind(ROWS)
    assert kind(ROWS.view(np.matrix)) is None


def test_kinds_of_the_listing_are_those_of_arguments() -> None:
    typeof = kernels.numba().typeof
    for x in [ROWS, ROWS.T, ROWS[:, :2], ROWS.astype("?"), 1, 1.0, True, None, np.uint64(3), (1, ROWS), (2, 3)]:
        told = json.loads(json.dumps(building._kind(typeof(x))))
        assert kernels._told_kind(told) == kind(x)
    assert building._is_open(building._kind(typeof("text")))


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with an extension of ``twice`` for floats, which triples, and a listing that fits."""
    (tmp_path / "source.py").write_text("made of this")
    (tmp_path / "compiled_0.so").write_bytes(b"not read by the test")
    listing = {
        "surroundings": kernels.surroundings(),
        "sources": {"source.py": kernels._digest(tmp_path / "source.py")},
        "entries": {twice.key: [[["float64", "float64"], "f"]]},
        "file": "compiled_0.so",
        "digest": kernels._digest(tmp_path / "compiled_0.so"),
    }
    (tmp_path / kernels.LISTING).write_text(json.dumps(listing))
    monkeypatch.setattr(kernels, "FOLDER", tmp_path)
    monkeypatch.setattr(kernels, "_loaded", lambda path: SimpleNamespace(f=lambda x, y: 3 * x))
    monkeypatch.setattr(twice, "_ready", None)
    monkeypatch.delenv(kernels.SWITCH, raising=False)
    kernels.extension.cache_clear()
    return tmp_path


def test_an_extension_is_used_for_the_arguments_that_it_has(package: Path) -> None:
    assert twice(1.0, 1.0) == 3.0
    assert twice(1, 1) == 2  # Numba compiles
    assert twice(1.0, 1) == 2.0


def damaged(listing: dict[str, Any], part: str) -> Any:
    return listing | {part: {"file": "compiled_1.so", "digest": "0"}.get(part, ["other"])}


REASONS = {
    "source": "source.py is not what it was made of",
    "gone": "source.py is not what it was made of",
    "surroundings": "made for",
    "switch": "FIBERSCOPE_KERNELS is numba",
}


@pytest.mark.parametrize(
    "what", ["source", "gone", "extension", "surroundings", "file", "digest", "sources", "text", "switch", "listing"]
)
def test_an_extension_that_does_not_fit_is_not_used(package: Path, what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    listing = package / kernels.LISTING
    told = json.loads(listing.read_text())
    match what:
        case "source":
            (package / "source.py").write_text("made of that")
        case "gone":
            (package / "source.py").unlink()
        case "extension":
            (package / "compiled_0.so").write_bytes(b"half of")
        case "text":
            listing.write_text(listing.read_text()[:-9])
        case "switch":
            monkeypatch.setenv(kernels.SWITCH, "numba")
        case "listing":
            listing.write_text(json.dumps([1, 2]))
        case _:
            listing.write_text(json.dumps(damaged(told, what)))
    assert twice(1.0, 1.0) == 2.0
    with pytest.raises(ImportError, match=REASONS.get(what, "damaged")):
        kernels.opened(package)


def test_an_extension_that_cannot_be_loaded_is_not_used(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    monkeypatch.setattr(kernels, "FOLDER", package)
    monkeypatch.setattr(twice, "_ready", None)
    kernels.extension.cache_clear()
    assert twice(1.0, 1.0) == 2.0


def test_sources_hold_what_is_compiled_in() -> None:
    """Every number of a kernel that has a name comes from a file that is hashed."""
    names = {path.relative_to(kernels.FOLDER).as_posix() for path in building._sources()}
    assert {"numerics/compiling/kernels.py", "numerics/compiling/building.py"} <= names
    seen = set()
    for module in {kernel.py_func.__module__ for kernel in kernels.MARKED} - {__name__}:
        source = ast.parse(Path(str(sys.modules[module].__file__)).read_text())
        assert module.removeprefix("fiberscope.").replace(".", "/") + ".py" in names
        for node in ast.walk(source):
            if isinstance(node, ast.ImportFrom) and str(node.module).startswith("fiberscope."):
                constants = [alias.name for alias in node.names if alias.name.isupper()]
                seen.update(constants)
                assert not constants or str(node.module)[11:].replace(".", "/") + ".py" in names
    assert seen


def test_kernels_travel_by_name() -> None:
    assert isinstance(rectify, Kernel)
    assert pickle.loads(pickle.dumps(rectify)) is rectify


def test_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    monkeypatch.setenv("NUMBA_NUM_THREADS", "3")
    assert threads() == 3
    for odd in ("99", "x", ""):
        monkeypatch.setenv("NUMBA_NUM_THREADS", odd)
        assert threads() == 8


BUILD = """
import sys
from pathlib import Path
from fiberscope.cli.compile import ask
from fiberscope.numerics.compiling.building import build
print(build(ask, Path(sys.argv[1]))[1])
"""
ANSWERS = """
import sys, pickle
from pathlib import Path
import numpy as np
import fiberscope as fs
from fiberscope.numerics.compiling import kernels
if len(sys.argv) > 2:
    kernels.functions = lambda key: entries(key)
    module, told = kernels.extension(Path(sys.argv[2]))
    def entries(key):
        return {kernels._told_kind(kinds): getattr(module, symbol) for kinds, symbol in told.get(key, ())}
rng = np.random.default_rng(1)
got = []
for size in (2, 3, 4):
    net = fs.Network.random((size, 7, 7, 1), size)
    found = fs.regions(net, fs.Box.cube(size))
    got += [int(fs.count_regions(net, fs.Box.cube(size))), found.sign_vectors, found.volumes]
wide = fs.Network.random((20, 12, 12, 12, 2), 0)
along = fs.regions_along(wide, fs.Segment(*rng.normal(size=(2, 20))))
got += [along.num_regions, along.breakpoints]
got += [int(fs.count_regions(fs.Network.random((8, 6, 6, 1), 0), fs.Box.cube(8)))]
got += [fs.functional_dimension(fs.Network.random((5, 8, 8, 1), 0), rng.normal(size=(100, 5))).exact]
Path(sys.argv[1]).write_bytes(pickle.dumps((got, sorted({name.split(".")[0] for name in sys.modules}))))
"""


@pytest.mark.slow
def test_an_extension_says_what_numba_says(tmp_path: Path) -> None:
    """Counts and signs, and floats bit by bit; and a first answer needs no Numba."""

    def run(code: str, *arguments: Path) -> None:
        subprocess.run([sys.executable, "-c", code, *map(str, arguments)], check=True, timeout=600)

    run(BUILD, tmp_path)
    run(ANSWERS, tmp_path / "a", tmp_path)
    run(ANSWERS, tmp_path / "b")
    (ahead, loaded), (usual, _) = (pickle.loads((tmp_path / name).read_bytes()) for name in "ab")
    assert len(ahead) == len(usual)
    assert all(np.array_equal(x, y) for x, y in zip(ahead, usual, strict=True))
    assert not {"numba", "llvmlite", "networkx", "torch", "onnx"} & set(loaded)
