"""All-pairs swap costs of 512 neurons and streamed second moments, against the formulas written out for all at once.

``d = 784, k = 87`` is the first layer of an MLP on MNIST at 90 % of the energy, ``d = 512, k = 150`` a hidden layer.
``w`` has 64 fixed entries per row, ``syre`` scales that are no mask. The references hold all Gram matrices and all
differences of coefficients at once, 0.5 to 0.7 GB; ours holds one.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fiberscope.neurons.classes import NeuronClasses
from fiberscope.neurons.subspace import moments
from harness import Case, Runner

Arrays = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]


def layer(scheme: str, m: int, d: int, k: int, fixed: int = 64) -> Arrays:
    """``F``, ``D``, ``W`` and a random basis."""
    rng = np.random.default_rng(0)
    basis = np.linalg.qr(rng.normal(size=(d, k)))[0]
    W = rng.normal(size=(m, d)) / np.sqrt(d)
    if scheme == "syre":
        return rng.normal(size=(m, d)), rng.uniform(0.9, 1.1, (m, d)) ** -0.5, W, basis
    D = np.ones((m, d))
    for row in D:
        row[rng.permutation(d)[:fixed]] = 0.0
    return (D == 0) * rng.normal(size=(m, d)), D, W, basis


def grams(arrays: Arrays) -> np.ndarray:
    """``(m, k, k)``: all ``S_i`` by one batched product."""
    _, D, _, basis = arrays
    return np.asarray((basis.T[None] * (D**2)[:, None, :]) @ basis)


def differences(arrays: Arrays) -> np.ndarray:
    """``(m, m, k)``: ``a_j - v_i``."""
    F, D, W, basis = arrays
    return np.asarray(((F + D * W) @ basis)[None] - (F @ basis)[:, None])


def swaps(costs: np.ndarray) -> np.ndarray:
    own = np.diagonal(costs)
    return np.asarray(costs + costs.T - own[:, None] - own[None, :])


def by_pseudoinverse(arrays: Arrays) -> np.ndarray:
    """The formulas as they stand: pseudoinverses of all Gram matrices."""
    inverse, apart = np.linalg.pinv(grams(arrays), hermitian=True), differences(arrays)
    return swaps(np.einsum("ijk,ijk->ij", apart @ inverse, apart))


def by_solving(arrays: Arrays) -> np.ndarray:
    """One batched linear solve instead, for invertible Gram matrices."""
    apart = differences(arrays)
    solved = np.linalg.solve(grams(arrays), apart.transpose(0, 2, 1)).transpose(0, 2, 1)
    return swaps(np.einsum("ijk,ijk->ij", solved, apart))


def ours(arrays: Arrays) -> np.ndarray:
    return NeuronClasses.from_arrays(*arrays).swap_costs()


def close(a: Any, b: Any) -> bool:
    return bool(np.allclose(a, b, rtol=1e-8, atol=1e-8))


def swap_case(scheme: str, m: int, d: int, k: int, quick: bool) -> Case:
    arrays = layer(scheme, m, d, k, fixed=min(64, d // 4))

    def solving() -> Runner:
        return lambda: by_solving(arrays)

    return Case(
        "swap costs, all pairs", f"{scheme}, {m} neurons, d={d}, k={k}", lambda: ours(arrays),
        lambda: by_pseudoinverse(arrays), {"batched solve": solving}, close, quick,
    )  # fmt: skip


def moment_case() -> Case:
    """Chunks of float32 against one product of the float64 copy, which needs more than twice the memory."""
    X = np.random.default_rng(0).random((20_000, 784), dtype=np.float32)

    def at_once() -> np.ndarray:
        wide = X.astype(np.float64)
        return np.asarray(wide.T @ wide / len(wide))

    return Case(
        "second moments", "20000 x 784 float32", lambda: moments(X, 784).second_moment, at_once, {}, close, quick=False
    )


def cases() -> list[Case]:
    return [
        swap_case("w", 64, 128, 16, quick=True),
        swap_case("syre", 64, 128, 16, quick=True),
        *(swap_case(scheme, 512, d, k, quick=False) for scheme in ("w", "syre") for d, k in ((784, 87), (512, 150))),
        moment_case(),
    ]
