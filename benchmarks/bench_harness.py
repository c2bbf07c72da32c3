"""The harness measures something known: a matrix product in NumPy against the same in a Python loop."""

from __future__ import annotations

import numpy as np

from harness import Case, Runner


def loop_product(left: list[list[float]], right: list[list[float]]) -> list[list[float]]:
    """The definition, entry by entry."""
    columns = list(zip(*right, strict=True))
    return [[sum(a * b for a, b in zip(row, column, strict=True)) for column in columns] for row in left]


def torch_product(left: np.ndarray, right: np.ndarray) -> Runner:
    """A peer: imported here, so that it may be absent."""
    import torch

    a, b = torch.from_numpy(left), torch.from_numpy(right)
    return lambda: torch.matmul(a, b)


def case(size: int, quick: bool) -> Case:
    rng = np.random.default_rng(0)
    left, right = rng.normal(size=(2, size, size))
    lists = left.tolist(), right.tolist()
    return Case(
        method="matrix product (the harness itself)",
        network=f"{size} x {size}",
        ours=lambda: left @ right,
        reference=lambda: loop_product(*lists),
        peers={"torch": lambda: torch_product(left, right)},
        agree=lambda a, b: bool(np.allclose(a, b)),
        quick=quick,
    )


def cases() -> list[Case]:
    return [case(8, quick=True), case(64, quick=False)]
