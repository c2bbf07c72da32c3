"""Where the cost of a preactivation is the cost of the function: Assumption C.2, and a weaker one that data can show.

If ``eta`` is injective, a function on inputs that span the subspace determines its preactivation. ReLU, GELU and SiLU
are not, but they are positive exactly on positive arguments, and injective there. So if the inputs on which a neuron
is *active* span the subspace, every weight that gives the same function has the same preactivation, and the cost is
exact. The paper asks for inputs that contain ``-x`` with ``x`` instead, which non-negative inputs never do; the
condition here can hold for them too. Where the active inputs do not span the subspace and the others are strictly
inactive, the preactivation can be changed a little without changing the function, and the cost is an upper bound.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fiberscope.neurons.activations import activation_of
from fiberscope.neurons.classes import NeuronClasses
from fiberscope.neurons.subspace import collect
from fiberscope.numerics.floats import BoolArray, IntArray, gamma
from fiberscope.numerics.rank import numerical_rank
from fiberscope.results import Result

ROWS_PER_DIRECTION = 8
"""Active inputs per direction of the subspace whose rank is looked at: a rank only grows with more."""


@dataclass(frozen=True, slots=True, eq=False)
class Exactness(Result):
    """Which neurons' functions have their exact cost, on the inputs projected onto the subspace."""

    exact: BoolArray = field(repr=False)
    """``(m,)``: True: the cost of this function at any neuron is exact, by ranks from singular values above a cut-off;
    False: an upper bound as far as is known."""
    active_ranks: IntArray = field(repr=False)
    """``(m,)``: the rank of the inputs on which the neuron is active (all inputs, for an injective activation)."""
    rank: int
    non_negative: bool | None
    """Whether the inputs are non-negative, so that the paper's own Assumption C.2 fails."""
    activation: str

    def __str__(self) -> str:
        kind = {True: "non-negative inputs", False: "inputs of both signs", None: "inputs of unknown sign"}
        return (
            f"{int(self.exact.sum())} of {len(self.exact)} costs are exact, the others are upper bounds "
            f"({self.activation}, {kind[self.non_negative]})"
        )


def exactness(classes: NeuronClasses, inputs: Any, activation: Any = "relu") -> Exactness:
    """Look at the inputs on which each neuron is active.

    >>> classes = NeuronClasses.from_arrays(np.zeros((2, 2)), np.ones((2, 2)), [[1.0, 1.0], [1.0, -1.0]], np.eye(2))
    >>> print(exactness(classes, [[1.0, 0.0], [0.0, 1.0]]))  # the second neuron is active on one input only
    1 of 2 costs are exact, the others are upper bounds (relu, inputs of unknown sign)
    """
    eta, k = activation_of(activation), classes.rank
    X = collect(inputs, classes.layer.width, name=classes.name, rows=classes.layer.rows)
    inner = X @ classes.basis
    if eta.injective:
        rank = numerical_rank(inner).rank
        ranks = np.full(classes.num_neurons, rank, dtype=np.int64)
    else:
        ranks = np.array([_active_rank(inner, a) for a in classes.coefficients], dtype=np.int64)
    return Exactness(ranks == k, ranks, k, classes.subspace.non_negative, eta.name)


def _active_rank(inner: np.ndarray, coefficient: np.ndarray) -> int:
    """Rank of the inputs ``c`` with ``a . c`` certainly positive, of which a spread-out choice is enough."""
    slack = gamma(len(coefficient) + 2) * (np.abs(inner) @ np.abs(coefficient))
    active = np.flatnonzero(inner @ coefficient > slack)
    step = max(1, len(active) // (ROWS_PER_DIRECTION * len(coefficient)))
    rank = numerical_rank(inner[active[::step]]).rank
    if rank < len(coefficient) and step > 1:
        rank = numerical_rank(inner[active]).rank
    return rank
