"""How often is the sign of a float wrong? On random points never; beside a kink, every third time.

Points are put as close to the hyperplanes of the first layer as floats allow. There the float sign of the
neuron is noise, while the certified sign is that of the exact value.
"""

from __future__ import annotations

import numpy as np

import fiberscope as fs


def beside_the_kinks(net: fs.Network, per_neuron: int, rng: np.random.Generator) -> np.ndarray:
    """Random points, each projected onto the hyperplane of one first-layer neuron and rounded to floats."""
    weight, bias = net.weights[0], net.biases[0]
    points = rng.normal(size=(per_neuron, len(weight), weight.shape[1]))
    heights = (points * weight).sum(axis=-1) + bias
    projected = points - (heights / (weight**2).sum(axis=1))[..., None] * weight
    return projected.reshape(-1, weight.shape[1])


def report(name: str, net: fs.Network, points: np.ndarray) -> None:
    """Print how many float signs differ from the certified ones, and what decided those."""
    plain = np.sign(np.concatenate(net.preactivations(points), axis=1))
    certified = net.signs(points)
    wrong = int((plain != certified.signs).sum())
    print(f"{name}: {plain.size} signs, {wrong} wrong in floats")
    print(f"    decided by a float error bound: {certified.by_float}, by balls: {certified.by_ball}, ", end="")
    print(f"in exact arithmetic: {certified.by_exact}; exact zeros: {len(certified.zeros)}")


def main() -> None:
    rng = np.random.default_rng(0)
    net = fs.Network.random((3, 20, 20, 1), seed=0)
    report("random points", net, rng.normal(size=(1000, 3)))
    report("points beside the kinks", net, beside_the_kinks(net, 50, rng))

    # With weights and inputs that are small multiples of 1/8, points can lie exactly on a kink.
    coarse = fs.Network([np.round(8 * w) / 8 for w in net.weights], [np.round(8 * b) / 8 for b in net.biases])
    report("a coarse grid", coarse, rng.integers(-8, 9, size=(1000, 3)) / 8)


if __name__ == "__main__":
    main()
