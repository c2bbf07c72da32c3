"""By which mechanisms do parameters of one function differ? Draws a strip per mechanism, and a movie.

Seven small networks with two inputs. In every strip the parameters (bars, coloured by layer) move and the function
above them does not; dashed lines are the hyperplanes of the first layer. Each member is proven to be the same function,
or checked on 100,000 inputs where no theorem applies.
"""

from __future__ import annotations

import numpy as np

import fiberscope as fs

STEPS = (0.0, 0.25, 0.5, 0.75, 1.0)
FIRST = ([[1.0, 0.5], [-0.5, 1.0]], [0.25, 0.125])


def network(second: object, bias: object, third: object) -> fs.Network:
    """A 2-2-n-1 network with the given second layer."""
    return fs.Network([FIRST[0], second, third], [FIRST[1], bias, [-0.4]])


def rescaled() -> list[fs.Network]:
    """Positive factors into a neuron, out of it again; and another order."""
    net = network([[1.0, -1.0], [-1.5, 1.0]], [0.25, 0.5], [[1.0, -1.0]])
    grown = [fs.rescale(net, [np.array([2.0**k, 1.0]), np.array([1.0, 2.0**-k])]) for k in range(4)]
    return [*grown, fs.permute(net, [[1, 0], [1, 0]])]


def dead() -> list[fs.Network]:
    """A neuron that is never on: its row may be anything non-positive, its outgoing weight anything."""
    rows = [[-1.0 + 0.8 * s, -0.2 - s] for s in STEPS]
    return [
        network([[1.0, -1.0], row], [0.25, -0.5 - s], [[1.5, 2 * s - 1]]) for row, s in zip(rows, STEPS, strict=True)
    ]


def linear() -> list[fs.Network]:
    """Two neurons that are always on are a matrix product, which has many factorisations."""
    W, b, V = np.array([[1.0, 0.5], [0.25, 1.0]]), np.array([0.5, 0.5]), np.array([[1.0, -1.5]])
    mixes = [np.array([[1.0, s], [0.5 * s, 1.0 + s]]) for s in STEPS]
    return [network(A @ W, A @ b, V @ np.linalg.inv(A)) for A in mixes]


def coincident() -> list[fs.Network]:
    """Two neurons with one hyperplane share their outgoing weights."""
    return [network([[1.0, -1.0], [2.0, -2.0]], [0.25, 0.5], [[2.0 - 2 * s, s - 0.5]]) for s in STEPS]


HIDING = network([[1.5, -1.0]], [-0.5], [[2.0]])


def translated() -> list[fs.Network]:
    """Where the second layer is on, the first neuron is: its hyperplane is hidden and can be moved."""
    return [fs.translate(HIDING, 0, 0, 1.2 * s) for s in STEPS]


def flipped() -> list[fs.Network]:
    """A single neuron that hides a hyperplane lets the other ones be reversed."""
    turned = fs.flip(HIDING, 0, 0, [1])
    return [HIDING, turned, fs.translate(turned, 0, 0, 0.6)]


def not_local() -> list[fs.Network]:
    """Three hidden layers: every pair of neighbours is identifiable, and the whole is not."""
    found = fs.non_localisable_network((2, 2, 2, 2, 1), seed=236)
    middle = float(np.median(found.network(np.random.default_rng(0).uniform(-2, 2, (1000, 2)))))
    members = [found.member(shift=2 * s) for s in STEPS]  # lowered alike, so that the colours show something
    return [fs.Network(net.weights, [*net.biases[:-1], net.biases[-1] - middle]) for net in members]


MECHANISMS = {
    "rescaled": rescaled,
    "dead": dead,
    "linear": linear,
    "coincident": coincident,
    "translated": translated,
    "flipped": flipped,
    "not_local": not_local,
}


def main() -> None:
    box = fs.Box.cube(2, -2.0, 2.0)
    X = np.random.default_rng(0).normal(size=(100_000, 2)) * 3
    for name, make in MECHANISMS.items():
        members = make()
        known = fs.identifiability(members[0])
        gap = max(float(np.abs(net(X) - members[0](X)).max()) for net in members)
        proven = sum(fs.equivalent(members[0], net).equal is True for net in members[1:])
        print(f"{name:11} identifiable: {known.identifiable}, largest difference {gap:.0e}, ", end="")
        print(f"{proven} of {len(members) - 1} proven equal; {'; '.join(known.reasons) or 'one orbit'}")
        axes = fs.plot.fiber(members, box, resolution=150)
        fs.plot.save_figure(axes[0][0], f"fiber_{name}.png", dpi=90)
    fs.plot.fiber_movie(fs.fiber(HIDING).path(translated()[-1]).networks(20), box, "fiber_translated.gif")


if __name__ == "__main__":
    main()
