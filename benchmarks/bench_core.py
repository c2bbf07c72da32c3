"""The core rows: one question each of the table that the front pages show, asked by the public functions.

Everything else is measured by the other files (``run.py --all``). A row without a reference has none that ends in time.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np

import fiberscope as fs
import peers
from bench_connectivity import chain, slow_weights
from bench_curves import rounded
from bench_dimension import flint_rank, kernel_case
from bench_lattice import random_network
from bench_regions import domain, network
from bench_symmetry import canonical_case
from harness import Case, Runner
from reference_curves import count_on_segment
from reference_edges import edge_subdivision
from reference_polygons import regions as split_polygons

CORNERS = np.array([[-1.0, -1.0], [1.0, -1.0], [1.0, 1.0], [-1.0, 1.0]])


def planar(widths: tuple[int, ...], ask: str = "count", reference: bool = False) -> Case:
    net, where = network(widths), domain(widths)
    ours: dict[str, Runner] = {
        "count": lambda: int(fs.count_regions(net, where)),
        "complex": lambda: fs.regions(net, where).num_regions,
    }
    corners = CORNERS if widths[0] == 2 else where.lift(CORNERS)  # type: ignore[union-attr]
    slow: Runner | None = (lambda: len(split_polygons(list(net.weights), list(net.biases)))) if reference else None
    name = "-".join(map(str, widths)) + ("" if widths[0] == 2 else ", a slice")
    other = {"syrenn": lambda: peers.syrenn_plane(net, corners)}
    return Case(f"regions in the plane, {ask}", name, ours[ask], slow, other, core=True)


def segment(widths: tuple[int, ...], reference: bool = True) -> Case:
    net = rounded(fs.Network.random(widths, 0))
    rng = np.random.default_rng(10000)
    a, b = (rng.normal(size=widths[0]).astype(np.float32).astype(np.float64) for _ in range(2))
    curve = fs.Segment(a, b)
    by_layers: Runner = lambda: count_on_segment(list(net.weights), list(net.biases), a, b)  # noqa: E731
    return Case(
        "regions along a segment", "-".join(map(str, widths)), lambda: fs.regions_along(net, curve).num_regions,
        by_layers if reference else None, {"syrenn": lambda: peers.syrenn_segment(net, a, b)}, core=True,
    )  # fmt: skip


def convolutional_segment() -> Case:
    """Two convolutions on 1 x 14 x 14 and a dense layer; the reference works on the dense view."""
    import torch
    from torch import nn

    torch.manual_seed(0)
    module = nn.Sequential(
        nn.Conv2d(1, 8, 3), nn.ReLU(), nn.Conv2d(8, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(800, 10)
    )
    net = fs.load(module, input_shape=(1, 14, 14))
    dense = net.as_mlp()
    rng = np.random.default_rng(1)
    a, b = rng.normal(size=(2, 196)).astype(np.float32).astype(np.float64)
    weights, biases = list(dense.weights), list(dense.biases)
    return Case(
        "regions along a segment", "CNN 14x14, 8 and 8 channels",
        lambda: fs.regions_along(net, fs.Segment(a, b)).num_regions, lambda: count_on_segment(weights, biases, a, b),
        {"syrenn": lambda: peers.syrenn_segment(dense, a, b)}, core=True,
    )  # fmt: skip


def solid(widths: tuple[int, ...], ask: str) -> Case:
    """The reference makes vertices and edges only, in floats."""
    net, box = random_network(widths), fs.Box.cube(widths[0])
    ours: dict[str, Runner] = {
        "count": lambda: int(fs.count_regions(net, box)),
        "all faces": lambda: fs.regions(net, box).num_regions,
    }
    return Case(
        f"regions in a box, {ask}",
        net.architecture,
        ours[ask],
        lambda: edge_subdivision(net),
        agree=answered,
        core=True,
    )


def answered(ours: object, other: object) -> bool:
    """The two answer different questions about the same complex; that they agree is asked by the tests."""
    return bool(ours) and other is not None


def whole_plane() -> Case:
    net = fs.Network.random((2, 8, 8, 1), 0)
    return Case(
        "regions on all of the plane", net.architecture, lambda: int(fs.count_regions(net, fs.Space(2))), None,
        {"relucent": lambda: peers.relucent_regions(net)}, core=True, wall=True,
    )  # fmt: skip


def doubled(widths: tuple[int, ...]) -> fs.Network:
    """Every second neuron of a layer is a copy of the one before it."""
    rng = np.random.default_rng(0)
    weights, biases = [], []
    for m, n in pairwise(widths):
        weight, bias = rng.normal(0, np.sqrt(2 / m), (n, m)), rng.normal(0, 0.1, n)
        if n != widths[-1]:
            weight[1::2], bias[1::2] = weight[::2], bias[::2]
        weights.append(weight.astype(np.float32).astype(np.float64))
        biases.append(bias.astype(np.float32).astype(np.float64))
    return fs.Network(weights, biases)


def simplification() -> Case:
    net = doubled((784, 512, 512, 512, 10))
    return Case(
        "simplification of doubled neurons", net.architecture,
        lambda: fs.simplify(net).network.widths, None, core=True,
    )  # fmt: skip


def planted() -> Case:
    """The structure of the module is found once, as whoever matches several pairs would do."""
    import torch

    widths = (784, 512, 512, 512, 10)
    a = chain(widths, 0)
    structure = fs.permutation_structure(a, torch.zeros(1, widths[0]))
    b = structure.apply(a, structure.only("permutation").random(7))
    return Case(
        "planted permutation by weights, distance left", "784-512-512-512-10",
        lambda: fs.match(a, b, structure, "weights").distances[1], lambda: slow_weights(a, b),
        agree=lambda ours, other: bool(ours <= 1e-6 and other <= 1e-6), core=True,
    )  # fmt: skip


def exact_rank() -> Case:
    net = fs.Network.random((8, 10, 10, 10, 10, 1), 0)
    X = np.random.default_rng(1).uniform(size=(768, 8))
    return Case(
        "exact rank, reference: flint", f"{net.architecture}, 768 points",
        lambda: fs.functional_dimension(net, X, ranks=("exact",)).exact, lambda: flint_rank(net, X), core=True,
    )  # fmt: skip


def core(case: Case) -> Case:
    """A case of another file among the core rows."""
    return replace(case, core=True)


def cases() -> list[Case]:
    return [
        planar((2, 64, 64, 1), reference=True),
        planar((2, 256, 256, 1)),
        planar((2, 256, 256, 1), "complex"),
        planar((2, 512, 512, 1)),
        planar((784, 256, 64, 1)),
        whole_plane(),
        segment((784, 256, 64, 1)),
        segment((784, 512, 512, 512, 10)),
        segment((784, 4096, 4096, 4096, 10), reference=False),
        convolutional_segment(),
        solid((3, 32, 32, 1), "count"),
        solid((6, 16, 16, 1), "all faces"),
        core(canonical_case((784, 512, 512, 512, 10), quick=False)),
        simplification(),
        planted(),
        exact_rank(),
        core(kernel_case("C1", quick=False, slow_peer=True)),
        core(kernel_case("C2", quick=False, slow_peer=True)),
    ]
