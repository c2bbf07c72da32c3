"""How much of an identity do fixed weights give a neuron? Swap costs on inputs of few and of many directions.

Run: python examples/swap_costs.py
"""

import numpy as np

import fiberscope as fs

WIDTH, INPUTS, FIXED = 64, 128, 16


def layer(rng: np.random.Generator, sigma: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A layer with 16 fixed entries per row, of size sigma, and small trained weights."""
    D = np.ones((WIDTH, INPUTS))
    for row in D:
        row[rng.permutation(INPUTS)[:FIXED]] = 0.0
    return (D == 0) * sigma * rng.normal(size=D.shape), D, rng.normal(size=D.shape) / np.sqrt(INPUTS)


print("directions  sigma   gap_out  least swap  negative  cheapest permutation")
for k in (2, 8, 32):
    for sigma in (0.0, 1.0):
        rng = np.random.default_rng(0)
        X = rng.normal(size=(1000, k)) @ rng.normal(size=(k, INPUTS))
        classes = fs.neuron_classes(layer(rng, sigma), X, energy=1.0, name="layer")
        swaps = classes.swap_costs()[np.triu_indices(WIDTH, 1)]
        best = classes.cheapest_permutation()
        print(
            f"{classes.rank:10d}  {sigma:5.1f}  {classes.gap_out:8.3f}  {swaps.min():10.4f}  {(swaps < 0).mean():8.1%}"
            f"  moves {sum(i != j for i, j in enumerate(best.permutation))} neurons, costs {best.cost:.3f}"
        )

print("\nwhere a cost comes from (32 directions): median over pairs")
terms = classes.swap_terms()
for name in ("center", "cross", "metric"):
    print(f"  {name:7s} {np.median(getattr(terms, name)[np.triu_indices(WIDTH, 1)]):8.3f}")
print(classes.concentration())
print(classes.smallest_output_cost())
