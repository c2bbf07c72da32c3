"""Known pairs beside two peers: ``python benchmarks/equality_peers.py [--only TEXT] [--seconds S] [--json F]``.

The question is how far apart two chains of ReLUs are on a box. *Ours* is :func:`fiberscope.largest_difference` (or
``equivalent``, where equality is asked). *MILP* is the plain encoding of both networks with big-M constants from
intervals, solved by HiGHS for the largest and the smallest difference of every output. *CROWN* is auto_LiRPA's bound of
the difference as one graph, with optimised slopes; it is left out where the package is not installed. Solvers work in
floats with tolerances: what they say is no proof, and is compared with nothing but itself.
"""

from __future__ import annotations

import argparse
import importlib
import json
import re
import sys
import time
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import lil_matrix

import fiberscope as fs
from equality_marks import PROPERTIES, SHARED, Limits, acas, apart, asked, noisy, unsatisfiable
from fiberscope.equality.bounding.chains import layers_of
from fiberscope.network.formats.float_types import rounded
from fiberscope.network.network import Network
from fiberscope.testing.pairs import pair

Pair = tuple[str, Network, Network, fs.Box, float | None]
"""A name, two networks, a box, and the tolerance if equality is asked."""


def pairs() -> Iterator[Pair]:
    net = Network.random((5, 20, 20, 1), seed=0)
    yield "5-20-20-1 noise", net, noisy(net, 0), fs.Box.cube(5), None
    trees = pair("max trees")
    yield "max of four by two trees", trees.a, trees.b, fs.Box.cube(4), 0.0
    clauses = unsatisfiable()
    yield "formula", clauses.network, clauses.zero, fs.Box.cube(8, 0.0, 1.0), 0.0
    if (SHARED / "nets").is_dir():
        net = fs.load(SHARED / "nets" / "cartpole.onnx")
        yield "cartpole float16", net, rounded(net, "float16"), fs.Box.cube(4), None
        net = fs.load(acas()[0])
        yield "acas float16 property 3", net, rounded(net, "float16"), fs.Box(*PROPERTIES[3]), 0.05


def layers(net: Network) -> tuple[list[np.ndarray], list[np.ndarray]] | None:
    """Weights and biases of a chain of ReLUs, affine maps in a row as one; None for other networks."""
    found = layers_of(net)
    weights: list[np.ndarray] = []
    biases: list[np.ndarray] = []
    bent = True
    for layer in found or ():
        weight, bias = layer.matrix, layer.offset
        if not bent:
            last = weights.pop()
            weight, bias = layer.matrix @ last, layer.matrix @ biases.pop() + bias
        weights.append(weight)
        biases.append(bias)
        bent = layer.slopes is not None
        if layer.slopes is not None and layer.slopes.any():
            return None
    return (weights, biases) if weights else None


def ours(a: Network, b: Network, box: fs.Box, tolerance: float | None, seconds: float) -> dict[str, Any]:
    """With CPU seconds, as the marks; what is measured below are CPU seconds, too."""
    if tolerance == 0:  # methods have parts of the time on the clock: without a limit there the first one takes all
        verdict = fs.equivalent(a, b, box, tolerance, seconds)
        return {"answer": verdict.equal, "low": verdict.interval.low, "high": verdict.interval.high}
    ask = apart(a, b, box, 1.05) if tolerance is None else asked(a, b, box, tolerance)
    return ask(Limits(seconds, None))


def by_milp(a: Network, b: Network, box: fs.Box, tolerance: float | None, seconds: float) -> dict[str, Any]:
    """The largest absolute difference, output by output: what was attained, and the solver's bound."""
    parts = layers(a), layers(b)
    if parts[0] is None or parts[1] is None:
        return {"note": "no chain of ReLUs"}
    columns, rows, integral = [(low, high) for low, high in zip(box.low, box.high, strict=True)], [], [0] * box.ambient
    outputs = []
    for weights, biases in parts:
        now = list(range(box.ambient))
        low, high = box.low, box.high
        for k, (w, c) in enumerate(zip(weights, biases, strict=True)):
            low, high = (np.minimum(w, 0) @ high + np.maximum(w, 0) @ low + c,
                         np.maximum(w, 0) @ high + np.minimum(w, 0) @ low + c)  # fmt: skip
            made = []
            for i in range(len(c)):
                z = len(columns)
                columns.append((low[i], high[i]))
                integral.append(0)
                rows.append(([z, *now], [1.0, *(-w[i])], c[i], c[i]))
                made.append(z)
                if k + 1 == len(weights):
                    continue
                h, d = z + 1, z + 2
                columns.extend([(0.0, max(high[i], 0.0)), (0.0, 1.0)])
                integral.extend([0, 1])
                down, up = min(low[i], 0.0), max(high[i], 0.0)
                rows.append(([h, z], [1.0, -1.0], 0.0, np.inf))
                rows.append(([h, z, d], [1.0, -1.0, -down], -np.inf, -down))  # h <= z - low (1 - d)
                rows.append(([h, d], [1.0, -up], -np.inf, 0.0))
                made[-1] = h
            now = made
            if k + 1 < len(weights):
                low, high = np.maximum(low, 0.0), np.maximum(high, 0.0)
        outputs.append(now)
    matrix = lil_matrix((len(rows), len(columns)))
    for r, (places, numbers, _, _) in enumerate(rows):
        for place, number in zip(places, numbers, strict=True):
            matrix[r, place] += number
    ends = np.array(columns)
    constraint = LinearConstraint(matrix.tocsr(), [row[2] for row in rows], [row[3] for row in rows])
    goals = [(p, q, sign) for p, q in zip(*outputs, strict=True) for sign in (1.0, -1.0)]
    begin, found, bound = time.monotonic(), 0.0, 0.0
    for p, q, sign in goals:
        left = max(0.1, seconds - (time.monotonic() - begin))
        cost = np.zeros(len(columns))
        cost[p], cost[q] = -sign, sign
        limits = Bounds(ends[:, 0], ends[:, 1])
        solved = milp(cost, constraints=constraint, bounds=limits, integrality=integral, options={"time_limit": left})
        found = max(found, 0.0 if solved.x is None else -float(solved.fun))
        dual = solved.mip_dual_bound
        bound = max(bound, np.inf if dual is None else -float(dual))
    return {"low": found, "high": bound}


def restore_old_names() -> None:
    """What auto_LiRPA 0.3 looks for where NumPy 2 and a torch of today do not have it any more.

    Names alone: where a set function of NumPy stands, its type of truth values, the setter of the version of operators
    and the access to attributes of nodes in a traced graph. It wants ``appdirs`` and ``tqdm`` besides.
    """
    from torch import _C
    from torch.onnx._internal.torchscript_exporter._globals import GLOBALS

    if "numpy.lib.arraysetops" not in sys.modules:
        sets: Any = types.ModuleType("numpy.lib.arraysetops")
        sets.isin = np.isin
        sys.modules["numpy.lib.arraysetops"] = sets
    if not hasattr(np, "bool"):
        np.bool = np.bool_
    symbolic_helper: Any = importlib.import_module("torch.onnx.symbolic_helper")  # the attribute is another module
    if not hasattr(symbolic_helper, "_set_opset_version"):
        symbolic_helper._set_opset_version = lambda version: setattr(GLOBALS, "export_onnx_opset_version", version)
    if not hasattr(_C.Node, "__getitem__"):
        _C.Node.__getitem__ = lambda node, key: getattr(node, node.kindOf(key))(key)


def by_crown(a: Network, b: Network, box: fs.Box, tolerance: float | None, seconds: float) -> dict[str, Any]:
    """The bound of auto_LiRPA on the difference of both as one module."""
    try:
        import torch

        restore_old_names()
        from auto_LiRPA import BoundedModule, BoundedTensor, PerturbationLpNorm
    except ImportError as error:
        return {"note": f"not installed, or it does not import ({error})"}
    parts = layers(a), layers(b)
    if parts[0] is None or parts[1] is None:
        return {"note": "no chain of ReLUs"}

    def module(weights: list[np.ndarray], biases: list[np.ndarray]) -> Any:
        made: list[Any] = []
        for w, c in zip(weights, biases, strict=True):
            line = torch.nn.Linear(w.shape[1], w.shape[0])
            line.weight.data, line.bias.data = torch.tensor(w).float(), torch.tensor(c).float()
            made += [line, torch.nn.ReLU()]
        return torch.nn.Sequential(*made[:-1])

    class Difference(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.one, self.two = module(*parts[0]), module(*parts[1])

        def forward(self, x: Any) -> Any:
            return self.one(x) - self.two(x)

    low, high = (torch.tensor(end).float()[None] for end in (box.low, box.high))
    middle = (low + high) / 2
    bounded = BoundedModule(Difference(), middle)
    ball = PerturbationLpNorm(norm=np.inf, x_L=low, x_U=high)
    try:
        lower, upper = bounded.compute_bounds(x=(BoundedTensor(middle, ball),), method="CROWN-Optimized")
    except RuntimeError as error:
        return {"note": f"it raises {' '.join(str(error).split())[:100]}"}
    return {"high": float(torch.maximum(lower.abs(), upper.abs()).max())}


CONTESTANTS: dict[str, Callable[..., dict[str, Any]]] = {"ours": ours, "MILP (HiGHS)": by_milp, "CROWN": by_crown}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="a regular expression: pairs whose name matches")
    parser.add_argument(
        "--seconds",
        type=float,
        default=60.0,
        help="per pair: CPU seconds of ours, wall time of the solver",
    )
    parser.add_argument("--json", type=Path, help="write the rows to a file")
    options = parser.parse_args()
    fs.equivalent(Network.random((2, 3, 1), 0), Network.random((2, 3, 1), 1), fs.Box.cube(2), 0.5)  # compiles
    rows = []
    for name, a, b, box, tolerance in pairs():
        if not re.search(options.only, name):
            continue
        for who, contestant in CONTESTANTS.items():
            begin = time.process_time()
            found = contestant(a, b, box, tolerance, options.seconds)
            rows.append({"pair": name, "who": who, **found, "cpu": round(time.process_time() - begin, 3)})
            print(rows[-1], flush=True)
    if options.json is not None:
        options.json.write_text(json.dumps(rows, indent=1, default=str))


if __name__ == "__main__":
    main()
