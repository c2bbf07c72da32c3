"""Are two networks one function? Copies, a split neuron, one changed bit, and what a proof looks like."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np

import fiberscope as fs


def split_neuron(net: fs.Network, index: int) -> fs.Network:
    """One neuron of the first layer as two, at different scales, sharing its outgoing weights."""
    first, second, *rest = (w.copy() for w in net.weights)
    bias, *others = (b.copy() for b in net.biases)
    column = second[:, index].copy()
    second[:, index] = column / 2
    return fs.Network(
        [np.vstack([first, 4 * first[index]]), np.column_stack([second, column / 8]), *rest],
        [np.append(bias, 4 * bias[index]), *others],
    )


def one_bit(net: fs.Network) -> fs.Network:
    """The last bit of one weight changed."""
    weights = [w.copy() for w in net.weights]
    weights[1][0, 0] = np.nextafter(weights[1][0, 0], np.inf)
    return fs.Network(weights, net.biases)


def main() -> None:
    net = fs.Network.random((5, 30, 30, 2), seed=0)
    copy = fs.Symmetry.random(net.widths, seed=1)(net)
    print("a permuted copy, rescaled by powers of two:\n   ", fs.equivalent(net, copy, tolerance=0))
    rounded = fs.Symmetry.random(net.widths, seed=1, dyadic=False)(net)
    print("rescaled by other numbers, up to rounding:\n   ", fs.equivalent(net, rounded))
    print("and as a real function:\n   ", fs.equivalent(net, rounded, tolerance=0))
    print("and on a box, with a bound:\n   ", fs.equivalent(net, rounded, fs.Box.cube(5), tolerance=1e-9))
    print("a neuron split in two:\n   ", fs.equivalent(net, split_neuron(net, 3), tolerance=0))
    changed = fs.equivalent(net, one_bit(net), tolerance=0)
    print("one bit of one weight changed:\n   ", changed)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "proof.json"
        changed.save(path)
        print(f"its certificate has {path.stat().st_size} bytes and replays:", fs.verify(path).evidence)
    small = fs.simplify(split_neuron(net, 3))
    print("simplified again:", small, small.merged)


if __name__ == "__main__":
    main()
