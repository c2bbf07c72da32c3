"""The package in an environment without torch: what stands on files and networks works, the rest says so in one line.

Every check runs in a fresh interpreter whose import system does not know torch, and where the network is an error.
"""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest

import fiberscope as fs

WITHOUT_TORCH = """
import sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {"torch", "transformers"}:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Absent())
def offline(event, arguments):
    if event in {"socket.connect", "socket.bind", "socket.getaddrinfo", "socket.sendto"}:
        raise RuntimeError("the network was used")
sys.addaudithook(offline)
import numpy as np
import fiberscope as fs
"""
ROOT = Path(__file__).resolve().parent.parent
LINE = "needs torch, which is not installed: pip install fiberscope[torch]"


def run(code: str, folder: Path) -> str:
    """What a fresh interpreter without torch prints; it must end well."""
    command = [sys.executable, "-B", "-c", WITHOUT_TORCH + code]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A network in every format, and a permuted copy of it."""
    home = tmp_path_factory.mktemp("models")
    net = fs.Network.random((2, 4, 1), seed=1)
    for ending in ("onnx", "npz", "safetensors", "pt"):
        fs.save(net, home / f"net.{ending}")
    fs.save(fs.permute(net, [[3, 0, 1, 2]]), home / "permuted.onnx")
    np.save(home / "X.npy", np.random.default_rng(0).normal(size=(20, 2)))
    return home


def test_files_regions_dimension_fibers_equality_report(folder: Path) -> None:
    """The way of a user who has files and no torch: each question is asked once."""
    code = """
onnx, npz, stored = (fs.load(f"net.{ending}") for ending in ("onnx", "npz", "safetensors"))
assert fs.identical(onnx, npz) and fs.identical(npz, stored)
X = np.load("X.npy")
assert fs.regions(npz, fs.Box.cube(2)).num_regions == fs.count_regions(npz, fs.Box.cube(2)) > 1
assert fs.functional_dimension(npz, X).exact <= 13
assert fs.ntk(npz, X).shape == (20, 20)
assert fs.roles(npz, X) and fs.simplify(npz).network
fiber, found = fs.fiber(npz), fs.identifiability(npz)
assert fiber.contains(fs.load("permuted.onnx")) and found
verdict = fs.equivalent("net.onnx", "permuted.onnx")
assert verdict.equal
verdict.save("proof.json")
assert fs.verify("proof.json", "net.onnx", "permuted.onnx")
assert fs.diff("net.onnx", "permuted.onnx").same and fs.audit("net.onnx", "permuted.onnx")
fs.save(npz, "copy.onnx")
fs.report("net.onnx", data=X, against="permuted.onnx", out="report.html")
assert not any(name.split(".")[0] == "torch" for name in sys.modules)
import socket
try:
    socket.create_connection(("127.0.0.1", 9))
except RuntimeError as error:
    print("done, and", error)  # the watch is awake: it stops whoever does
"""
    assert run(code, folder) == "done, and the network was used\n"
    assert (folder / "report.html").stat().st_size > 10_000


def test_what_needs_torch_says_so_in_one_line(folder: Path) -> None:
    code = f"""
def line(ask):
    try:
        ask()
    except fs.MissingExtraError as error:
        assert isinstance(error, (fs.FiberscopeError)) and isinstance(error, ImportError)
        assert "{LINE}" in str(error) and len(str(error).splitlines()) == 1, error
        return str(error).split(" needs")[0]
    raise AssertionError("no error")

net = fs.load("net.npz")
print(line(lambda: fs.match), line(lambda: fs.train_many), line(lambda: fs.mlp), sep=", ")
print(line(lambda: fs.load("net.pt")), line(lambda: fs.save(net, "new.pt")), line(net.to_torch), sep=", ")
np.savez("plain.npz", **{{"0.weight": np.ones((1, 2))}})
print(line(lambda: fs.diff("plain.npz", {{"0.weight": np.zeros((1, 2))}})))
"""
    assert run(code, folder).splitlines() == [
        "fiberscope.match, fiberscope.train_many, fiberscope.mlp",
        "net.pt: a .pt file, a .pt file, to_torch",
        "comparing checkpoints by their tensors",
    ]


def test_commands(folder: Path) -> None:
    code = """
import contextlib, io
from fiberscope.cli import main
for command in ("regions net.onnx --count", "equal net.onnx permuted.onnx", "inspect net.pt", "tour --out tour"):
    sys.argv, said, ended = ["fiberscope", *command.split()], io.StringIO(), 0
    try:
        with contextlib.redirect_stderr(said), contextlib.redirect_stdout(io.StringIO()):
            main()
    except SystemExit as stop:
        ended = stop.code or 0
    print(ended, said.getvalue().strip())
"""
    assert [line.rstrip() for line in run(code, folder).splitlines()] == [
        "0",
        "0",
        f"2 error: net.pt: a .pt file {LINE}",
        f"2 error: the tour {LINE}",
    ]


def test_every_public_name_loads_or_says_so(tmp_path: Path) -> None:
    """No name breaks in a third way; the list of those that need torch is what the page on stability says."""
    out = run(
        """
for name in fs.__all__:
    try:
        getattr(fs, name)
    except fs.MissingExtraError as error:
        print(name)
""",
        tmp_path,
    )
    said = tomllib.loads((ROOT / "docs" / "stability.toml").read_text(encoding="utf-8"))["torch"]
    assert sorted(out.split()) == sorted(said)
