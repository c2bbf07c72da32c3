"""Canonical forms, matching, equality and simplification against slow, obvious versions of the same questions."""

from __future__ import annotations

import numpy as np
from scipy.optimize import linear_sum_assignment

from fiberscope.equality.ladder import equivalent
from fiberscope.fibers.canonical.form import canonical, normalised
from fiberscope.fibers.canonical.matching import same_up_to_symmetry
from fiberscope.fibers.hidden_hyperplanes import flip, translate
from fiberscope.fibers.simplify.simplify import simplify
from fiberscope.geometry.domains import Box
from fiberscope.geometry.ranges.domain_roles import domain_roles
from fiberscope.network.action.chain import Symmetry
from fiberscope.network.network import Network
from fiberscope.testing import fraction_values
from harness import Case

DEEP = (5, 50, 50, 50, 50, 50, 50, 5)


def full_assignment(a: Network, b: Network) -> bool:
    """Matching by the distances of all pairs of rows, without any shortcut."""
    left, right = normalised(a), normalised(b)
    order = np.arange(a.in_size)
    for layer in range(len(left.scales)):
        mine = np.column_stack([left.rows[layer][:, :-1][:, order], left.rows[layer][:, -1]])
        gaps = np.stack([np.abs(right.rows[layer] - row).max(axis=1) for row in mine])
        rows, columns = linear_sum_assignment(gaps)
        if gaps[rows, columns].max() > 1e-12:
            return False
        order = rows[np.argsort(columns)]
    last = left.rows[-1]
    return bool(np.abs(last[:, :-1][:, order] - right.rows[-1][:, :-1]).max() <= 1e-12)


def matching_case(widths: tuple[int, ...], quick: bool) -> Case:
    net = Network.random(widths, 0)
    copy = Symmetry.random(widths, 1, dyadic=False)(net)
    return Case(
        method="same up to symmetry, against the Hungarian method on all pairs",
        network=net.architecture,
        ours=lambda: bool(same_up_to_symmetry(net, copy)),
        reference=lambda: full_assignment(net, copy),
        quick=quick,
    )


def canonical_case(widths: tuple[int, ...], quick: bool) -> Case:
    net = Network.random(widths, 0)

    def by_rows() -> np.ndarray:
        weights, biases = [w.copy() for w in net.weights], [b.copy() for b in net.biases]
        for layer in range(len(weights) - 1):
            size = np.maximum(np.abs(weights[layer]).max(axis=1), np.abs(biases[layer]))
            weights[layer] /= size[:, None]
            biases[layer] /= size
            weights[layer + 1] *= size
            order = sorted(range(len(size)), key=lambda i: (*weights[layer][i].tolist(), biases[layer][i]))
            weights[layer], biases[layer] = weights[layer][order], biases[layer][order]
            weights[layer + 1] = weights[layer + 1][:, order]
        return weights[-1]

    return Case(
        method="canonical form, against a sort of lists of rows",
        network=net.architecture,
        ours=lambda: canonical(net).weights[-1],
        reference=by_rows,
        agree=lambda a, b: bool(np.array_equal(a, b)),
        quick=quick,
    )


def equal_case() -> Case:
    net = Network.random(DEEP, 0)
    copy = Symmetry.random(DEEP, 1)(net)
    return Case(
        method="proof of equality, against a comparison of canonical forms",
        network=net.architecture,
        ours=lambda: equivalent(net, copy, tolerance=0).equal,
        reference=lambda: all(
            np.array_equal(x, y) for x, y in zip(canonical(net).weights, canonical(copy).weights, strict=True)
        ),
    )


def different_case() -> Case:
    net = Network.random(DEEP, 0)
    rng = np.random.default_rng(1)
    other = Network([w * (1 + 1e-3 * rng.normal(size=w.shape)) for w in net.weights], net.biases)
    x = np.ones(5)

    def by_fractions() -> bool:
        return fraction_values(net, x)[-1] == fraction_values(other, x)[-1]

    return Case(
        method="refutation, confirmed exactly, against one evaluation in fractions",
        network=net.architecture,
        ours=lambda: bool(equivalent(net, other, tolerance=0).equal),
        reference=by_fractions,
    )


def bottleneck_case(widths: tuple[int, ...], quick: bool) -> Case:
    """A hidden hyperplane moved, others reflected: the theorem, against one comparison of the two at 10^5 inputs."""
    rng = np.random.default_rng(0)
    rows = -rng.uniform(0.5, 2.0, (widths[2], widths[1] + 1))
    rows[:, 0] *= -1.0
    weights = [rng.normal(size=(widths[1], widths[0])), rows[:, :-1], rng.normal(size=(widths[3], widths[2]))]
    net = Network(weights, [rng.normal(size=widths[1]), rows[:, -1], rng.normal(size=widths[3])])
    flipped = range(1, widths[1], 2) if widths[2] == 1 else ()
    other = Network(*translate(*flip(net.weights, net.biases, 0, 0, tuple(flipped)), 0, 0, 0.5))
    X = rng.normal(size=(100_000, widths[0]))
    return Case(
        method="proof of equality by the bottleneck theorem, against 10^5 inputs, which prove nothing",
        network=f"{net.architecture}, hidden hyperplane moved",
        ours=lambda: bool(equivalent(net, other).equal),
        reference=lambda: bool(np.allclose(net(X), other(X))),
        quick=quick,
    )


def simplify_case() -> Case:
    rng = np.random.default_rng(0)
    net = Network.random((4, 24, 24, 2), rng)
    weights, biases = [w.copy() for w in net.weights], [b.copy() for b in net.biases]
    weights[0][12:], biases[0][12:] = 4 * weights[0][:12], 4 * biases[0][:12]
    weights[1], biases[1] = np.round(weights[1] * 64) / 64, -np.abs(biases[1])
    model, box = Network(weights, biases), Box.cube(4)
    return Case(
        method="simplification with its proof, against the roles of the neurons alone",
        network=f"{model.architecture} on a box",
        ours=lambda: simplify(model, box, 1.0).network.widths[1] <= 12,
        reference=lambda: domain_roles(model, box, 1.0).dead.size == 48,
    )


def cases() -> list[Case]:
    return [
        equal_case(),
        different_case(),
        canonical_case((64, 256, 256, 10), quick=True),
        canonical_case((784, 2048, 2048, 10), quick=False),
        matching_case((16, 96, 96, 10), quick=True),
        matching_case((784, 512, 512, 10), quick=False),
        bottleneck_case((12, 8, 1, 2), quick=True),
        bottleneck_case((60, 50, 40, 5), quick=False),
        simplify_case(),
    ]
