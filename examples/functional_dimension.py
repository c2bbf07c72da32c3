"""How many independent things can 361 parameters do? At initialisation a few dozen, and float32 miscounts them.

The rank of the Jacobian on a batch is computed three times: exactly, by singular values in float64, and by the rule of
float32 software. Then the bounds: which of them explains the number?
"""

from __future__ import annotations

import numpy as np

import fiberscope as fs


def report(name: str, net: fs.Network, X: np.ndarray | None) -> None:
    result = fs.functional_dimension(net, X)
    print(f"{name}: {result.num_parameters} parameters, {result.num_points} points ({result.batch})")
    state = "certified" if result.certified else f"wrong with probability below {result.failure_probability:.0e}"
    print(f"    exact {result.exact} ({state}), float64 {result.numerical}, float32 rule {result.paper}")
    for bound in sorted(result.bounds, key=lambda b: b.value)[:3]:
        print(f"    at most {bound.value} by {bound.name}{'' if bound.holds else ' (assumptions not met)'}")
    symmetry = result.symmetry
    if symmetry is not None:
        fixed = [(layer.active, layer.inactive) for layer in symmetry.layers]
        print(f"    always active and always inactive neurons per layer: {fixed}; stabiliser {symmetry.stabiliser}")


def main() -> None:
    rng = np.random.default_rng(0)
    deep = fs.Network.random((1, 10, 10, 10, 10, 1), seed=0)
    report("one input, at initialisation", deep, np.linspace(0, 1, 100)[:, None])
    report("the same network on all of R", deep, None)
    report("eight inputs", fs.Network.random((8, 10, 10, 10, 10, 1), seed=0), rng.normal(size=(300, 8)))

    # The claim that stabilisers are trivial for roughly monotonic widths fails for 1-4-3: shift all neurons on.
    small = fs.Network.random((1, 4, 3), seed=0)
    always_on = fs.Network(small.weights, [np.abs(small.biases[0]) + 10, small.biases[1]])
    report("four neurons that are always on", always_on, rng.uniform(-1, 1, size=(20, 1)))


if __name__ == "__main__":
    main()
