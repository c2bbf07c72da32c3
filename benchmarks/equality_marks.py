"""Bounds of differences on known pairs: ``python benchmarks/equality_marks.py [--only TEXT] [--cpu S] [--json F]``.

One thread, CPU seconds, so that a busy machine does not count. Networks and images are read from the folder that
``FIBERSCOPE_SHARED`` names. Not part of CI: the hard pairs take a hundred seconds each. A mark says what was decided,
the interval of the largest difference, boxes and CPU time; proofs and counterexamples are counted apart. With
``--check`` every certificate goes through the standalone checker, in a Python without packages.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

import fiberscope as fs
from fiberscope.fibers.hardness import satisfiability_network
from fiberscope.network.action.chain import Symmetry
from fiberscope.network.chains import try_split
from fiberscope.network.formats.float_types import rounded
from fiberscope.network.network import Network
from fiberscope.network.nodes import Affine, Node

SHARED = Path(os.environ.get("FIBERSCOPE_SHARED", "shared"))

PROPERTIES = {
    1: ([0.6, -0.5, -0.5, 0.45, -0.5], [0.679857769, 0.5, 0.5, 0.5, -0.45]),
    3: ([-0.303531156, -0.009549297, 0.493380324, 0.3, 0.3], [-0.298552812, 0.009549297, 0.5, 0.5, 0.5]),
    4: (
        [-0.303531156, -0.009549297, 0.0, 0.318181818, 0.083333333],
        [-0.298552812, 0.009549297, 0.0, 0.5, 0.454545455],
    ),
}
"""Boxes of the ACAS Xu properties; 1 and 2 have the same one."""

Mark = tuple[str, Callable[["Limits"], dict[str, Any]]]


class OutOfCpu(Exception):
    """The CPU time of a mark is used up."""


class Limits:
    """CPU seconds for one mark, and where its certificate goes, if that is to be checked."""

    wall = 1e5
    """The clock on the wall is no limit."""

    def __init__(self, cpu: float, folder: Path | None) -> None:
        self.cpu, self.folder, self.begin, self.text = cpu, folder, time.process_time(), ""

    @property
    def spent(self) -> float:
        return time.process_time() - self.begin

    def progress(self, done: int, total: int | None, text: str) -> None:
        """Is called by the search every now and then."""
        self.text = text
        if self.spent > self.cpu:
            raise OutOfCpu

    def checked(self, verdict: Any) -> dict[str, Any]:
        """What the standalone checker says to the certificate, and how long it takes."""
        if self.folder is None or verdict.evidence is None:
            return {}
        path = self.folder / "proof.json"
        verdict.save(path)
        used = os.times()
        command = [sys.executable, "-I", "-S", str(Path(fs.__file__).parent / "equality" / "checker.py"), str(path)]
        answer = subprocess.run(command, capture_output=True, text=True, check=False)
        now = os.times()
        seconds = now.children_user + now.children_system - used.children_user - used.children_system
        return {"checker": answer.returncode, "checker cpu": round(seconds, 2), "bytes": path.stat().st_size}


def changed(net: Network, change: Callable[[np.ndarray], np.ndarray]) -> Network:
    """A copy with other numbers in its dense layers, weights and biases in the order of the layers."""
    nodes: list[Node] = []
    for node in net.nodes:
        if isinstance(node, Affine) and node.operator.coefficients.ndim == 2:
            weight = change(node.operator.coefficients)
            bias = None if node.bias is None else change(node.bias)
            nodes.append(Affine(node.source, node.operator.with_coefficients(weight), bias))
        else:
            nodes.append(node)
    return Network.from_nodes(nodes, net.input_shape)


def noisy(net: Network, seed: int, scale: float = 1e-3) -> Network:
    """Gaussian noise on every number, rounded to float32."""
    rng = np.random.default_rng(seed)
    return changed(net, lambda x: (x + rng.normal(0, scale, x.shape)).astype(np.float32).astype(np.float64))


def pruned(net: Network, share: float = 0.1) -> Network:
    """Without the smallest weights of every layer."""
    return changed(net, lambda x: np.where(np.abs(x) < np.quantile(np.abs(x), share), 0.0, x) if x.ndim == 2 else x)


def int8(net: Network) -> Network:
    """Weights on a grid of 255 steps for every layer."""
    return changed(net, lambda x: np.round(x / np.abs(x).max() * 127) * (np.abs(x).max() / 127) if x.ndim == 2 else x)


def asked(*question: Any, **options: Any) -> Callable[[Limits], dict[str, Any]]:
    """A question to :func:`fiberscope.equivalent`, with what it told."""

    def run(limits: Limits) -> dict[str, Any]:
        try:
            verdict = fs.equivalent(*question, time_limit=limits.wall, progress=limits.progress, **options)
        except OutOfCpu:
            return {"answer": None, "cpu": round(limits.spent, 3), "reached": limits.text}
        cpu = round(limits.spent, 3)
        boxes = len(getattr(verdict.evidence, "tree", ()))
        known = verdict.interval
        told = {"answer": verdict.equal, "low": known.low, "high": known.high, "tree": boxes, "method": verdict.method}
        return {**told, "cpu": cpu, **limits.checked(verdict)}

    return run


def apart(a: Network, b: Network, box: fs.Box, ratio: float) -> Callable[[Limits], dict[str, Any]]:
    """How far apart at most."""

    def run(limits: Limits) -> dict[str, Any]:
        try:
            known = fs.largest_difference(a, b, box, ratio, limits.wall, progress=limits.progress)
        except OutOfCpu:
            return {"answer": None, "cpu": round(limits.spent, 3), "reached": limits.text}
        answer = known.ratio <= ratio
        told = {"answer": answer, "low": known.low, "high": known.high, "ratio": known.ratio}
        return {**told, "cpu": round(limits.spent, 3)}

    return run


def acas() -> list[Path]:
    return sorted(p for p in (SHARED / "nets" / "acasxu").glob("*.onnx") if "perturbed" not in p.name)


def small_marks() -> Iterator[Mark]:
    for seed in range(10):
        net = Network.random((5, 20, 20, 1), seed=seed)
        yield f"5-20-20-1 noise {seed}", apart(net, noisy(net, seed), fs.Box.cube(5), 1.05)
    nets = SHARED / "nets"
    for name, size, ratio in (("cartpole", 4, 1.05), ("lunarlander", 8, 2.0)):
        net = fs.load(nets / f"{name}.onnx")
        yield f"{name} float16", apart(net, rounded(net, "float16"), fs.Box.cube(size), ratio)
    one, other = (fs.load(nets / f"acasxu_1_1{end}.onnx") for end in ("", "_perturbed"))
    for tolerance in (0.05, 0.3):
        yield f"acasxu perturbed {tolerance}", asked(one, other, fs.Box.cube(5, -0.5, 0.5), tolerance)
    one, other = (fs.load(nets / f"mnist_256x4{end}.onnx") for end in ("", "_split"))
    yield "mnist split", asked(one, other, fs.Box.cube(784, 0.0, 1.0), 1e-5)
    clauses = unsatisfiable()
    yield "formula", asked(clauses.network, clauses.zero, fs.Box.cube(8, 0.0, 1.0), 0.0)


def unsatisfiable() -> Any:
    """Eight variables, 34 clauses of three literals, without a solution."""
    for seed in range(1000):
        rng = np.random.default_rng(seed)
        signs = rng.choice([-1, 1], (34, 3))
        clauses = [(signs[k] * (1 + rng.choice(8, 3, replace=False))).tolist() for k in range(34)]
        found = satisfiability_network(clauses, 8)
        if not found.solutions():
            return found
    raise RuntimeError("no formula found")


def acas_marks() -> Iterator[Mark]:
    files = acas()
    for k in range(50):
        net = fs.load(files[(7 * k) % 45])
        low, high = PROPERTIES[max(1 + k % 4, 1) if 1 + k % 4 != 2 else 1]
        yield f"acas pair {k}", asked(net, noisy(net, 1000 + k), fs.Box(low, high), 0.05)
    for number in (3, 4, 1):
        for file in files:
            net, box = fs.load(file), fs.Box(*PROPERTIES[number])
            yield f"acas float16 property {number} {file.stem}", asked(net, rounded(net, "float16"), box, 0.05)
            if number != 1:
                yield f"acas pruned property {number} {file.stem}", asked(net, pruned(net), box, 0.05)
                yield f"acas int8 property {number} {file.stem}", asked(net, int8(net), box, 0.05)


def copies_marks() -> Iterator[Mark]:
    """Every file against copies of itself, up to the rounding of what is stored."""
    for file in sorted((SHARED / "nets").glob("*.onnx")):
        net = fs.load(file)
        chain = try_split(net)
        if chain is not None:
            found = Symmetry.random(chain.tail.widths, 1)
            rng = np.random.default_rng(2)
            ones = [np.ones(len(order)) for order in found.permutations]
            powers = [2.0 ** rng.integers(-3, 4, len(order)) for order in found.permutations]
            still = [np.arange(len(order)) for order in found.permutations]
            for name, element in (
                ("permuted", Symmetry(found.permutations, ones)),
                ("rescaled", Symmetry(still, powers)),
            ):
                yield f"copy {name} {file.stem}", asked(net, chain.joined(element(chain.tail)))
        with tempfile.TemporaryDirectory() as folder:
            fs.save(net, Path(folder) / "copy.onnx")
            again = fs.load(Path(folder) / "copy.onnx")
        yield f"copy written {file.stem}", asked(net, again)
        yield (
            f"copy float16 {file.stem}",
            asked(net, rounded(net, "float16")),
        )


def mnist_marks() -> Iterator[Mark]:
    packed = gzip.decompress((SHARED / "data" / "mnist" / "t10k-images-idx3-ubyte.gz").read_bytes())
    images = np.frombuffer(packed, np.uint8, offset=16).reshape(-1, 784)[:100] / 255.0
    net = fs.load(SHARED / "nets" / "mnist_256x2.onnx")
    for kind, other in (("float16", rounded(net, "float16")), ("int8", int8(net))):
        for radius in (0.01, 0.015):
            for k, x in enumerate(images):
                box = fs.Box(np.clip(x - radius, 0, 1), np.clip(x + radius, 0, 1))
                yield f"mnist {kind} ball {radius} image {k}", asked(net, other, box, criterion="argmax")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="a regular expression: marks whose name matches")
    parser.add_argument("--cpu", type=float, default=100.0, help="CPU seconds for every mark")
    parser.add_argument("--check", action="store_true", help="hand certificates to the standalone checker")
    parser.add_argument("--json", type=Path, help="write the rows to a file")
    options = parser.parse_args()
    rows, counts = [], Counter[str]()
    fs.equivalent(Network.random((2, 3, 1), 0), Network.random((2, 3, 1), 1), fs.Box.cube(2), 0.5)  # compiles
    with tempfile.TemporaryDirectory() as folder:
        for source in (small_marks, copies_marks, acas_marks, mnist_marks):
            for name, mark in source():
                if not re.search(options.only, name):
                    continue
                row = {"mark": name, **mark(Limits(options.cpu, Path(folder) if options.check else None))}
                rows.append(row)
                counts[str(row["answer"])] += 1
                print(row, flush=True)
    print(dict(counts), "median cpu", float(np.median([row["cpu"] for row in rows])) if rows else None)
    if options.json is not None:
        options.json.write_text(json.dumps(rows, indent=1, default=str))


if __name__ == "__main__":
    main()
