"""Random symmetry-breaking layers, degenerate ones included, and the slow formulas that everything is compared with."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from fiberscope.neurons.classes import NeuronClasses

SCHEMES = ("w", "syre", "residual", "sparse", "plain", "starved", "mixed")


def random_layer(
    seed: int, m: int, d: int, k: int, scheme: str, aligned: bool = False
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """``F``, ``D``, ``W`` and a basis; an aligned basis consists of coordinate axes, as coherent as it can be."""
    rng = np.random.default_rng(seed)
    basis = np.linalg.qr(rng.normal(size=(d, k)))[0]
    if aligned:
        basis = np.eye(d)[:, rng.permutation(d)[:k]]
    W = rng.normal(size=(m, d)) / np.sqrt(d)
    F, D = np.zeros((m, d)), np.ones((m, d))
    if scheme == "w":
        D = (rng.random((m, d)) > 0.25).astype(float)
        F = (D == 0) * rng.normal(size=(m, d))
    elif scheme == "syre":
        D, F = rng.uniform(0.5, 1.5, (m, d)) ** -0.5, rng.normal(size=(m, d))
    elif scheme == "residual":
        F = np.eye(m, d)
    elif scheme == "sparse":
        D = (rng.random((m, d)) > 0.5).astype(float)
    elif scheme == "starved":  # hardly anything is free, and the first row is all fixed
        D = (rng.random((m, d)) > 0.85).astype(float)
        F = (D == 0) * rng.normal(size=(m, d))
        D[0], F[0] = 0.0, rng.normal(size=d)
        if m > 1:
            D[1], F[1] = D[0], F[0]  # the same frozen neuron twice
    elif scheme == "mixed":
        D = rng.choice([0.0, 1.0, 2.0], size=(m, d))
        F = rng.normal(size=(m, d))
    return F, D, W, basis


@st.composite
def layers(draw: st.DrawFn, schemes: tuple[str, ...] = SCHEMES) -> NeuronClasses:
    """Neuron classes of a random layer."""
    d = draw(st.integers(1, 9))
    m, k = draw(st.integers(1, 6)), draw(st.integers(1, d))
    arrays = random_layer(draw(st.integers(0, 10**6)), m, d, k, draw(st.sampled_from(schemes)), draw(st.booleans()))
    return NeuronClasses.from_arrays(*arrays)


def constrained_least_squares(fixed: np.ndarray, scales: np.ndarray, basis: np.ndarray, a: np.ndarray) -> float:
    """Least ``|w|^2`` with ``U^T (f + d * w) = a`` by solving for ``w`` itself, infinite if there is none."""
    matrix = basis.T * scales
    target = a - basis.T @ fixed
    w = np.linalg.lstsq(matrix, target, rcond=1e-10)[0]
    size = 1 + np.abs(a).max() + np.abs(fixed).max()
    return float(w @ w) if np.abs(matrix @ w - target).max() < 1e-8 * size else float("inf")


def slow_costs(classes: NeuronClasses) -> np.ndarray:
    """``C[i, j]``: function ``j`` at neuron ``i``, each by its own least-squares problem."""
    layer = classes.layer
    targets = layer.effective @ classes.basis
    return np.array(
        [
            [constrained_least_squares(f, s, classes.basis, a) for a in targets]
            for f, s in zip(layer.F, layer.D, strict=True)
        ]
    )
