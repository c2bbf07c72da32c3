"""The group that acts on every ReLU chain: permutations and positive rescalings of its hidden neurons."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fiberscope.errors import InputError
from fiberscope.network.actions import permute, rescale
from fiberscope.network.chains import split
from fiberscope.network.network import Network, Seed
from fiberscope.numerics.arrays import real_array
from fiberscope.numerics.floats import FloatArray, IntArray
from fiberscope.results import Result


@dataclass(frozen=True, eq=False)
class Symmetry(Result):
    """One permutation and one vector of positive scales per hidden layer.

    Applied to a chain, new neuron ``i`` of layer ``l`` is old neuron ``permutations[l][i]``; its row of ``(W_l | b_l)``
    is multiplied by ``scales[l][i]`` and its column of ``W_{l+1}`` divided by it. ``(g @ h)(net) = g(h(net))``. With
    scales that are powers of two all laws hold bit for bit, otherwise up to the rounding of the scales.

    >>> g = Symmetry([[1, 0]], [[2.0, 4.0]])
    >>> (g @ g.inverse()).is_identity
    True
    >>> net = Network([[[1.0], [3.0]], [[1.0, 8.0]]], [[0.0, 0.0], [0.0]])
    >>> g(net).weights
    (array([[6.],
           [4.]]), array([[4.  , 0.25]]))
    """

    permutations: tuple[IntArray, ...]
    scales: tuple[FloatArray, ...]

    def __init__(self, permutations: Sequence[Any], scales: Sequence[Any]) -> None:
        if len(permutations) != len(scales):
            raise InputError(f"symmetry: expected as many scales as permutations, got {len(scales)}")
        orders, factors = [], []
        for p, s in zip(permutations, scales, strict=True):
            order, factor = np.asarray(p), real_array(s, "scales", ndim=1)
            n = factor.size
            if order.shape != (n,) or order.dtype.kind not in "iu" or not (np.sort(order) == np.arange(n)).all():
                raise InputError(f"permutations: expected a permutation of 0 to {n - 1}, got {order.tolist()}")
            if not (factor > 0).all():
                raise InputError(f"scales: expected positive numbers, got {factor.tolist()}")
            orders.append(order.astype(np.int64))
            factors.append(factor.copy())
        for array in (*orders, *factors):
            array.setflags(write=False)
        object.__setattr__(self, "permutations", tuple(orders))
        object.__setattr__(self, "scales", tuple(factors))

    @classmethod
    def identity(cls, widths: Sequence[int]) -> Symmetry:
        """Of a chain with the given widths ``(n_0, ..., n_L)``."""
        return cls([np.arange(n) for n in widths[1:-1]], [np.ones(n) for n in widths[1:-1]])

    @classmethod
    def random(cls, widths: Sequence[int], seed: Seed, spread: int = 8, dyadic: bool = True) -> Symmetry:
        """A random element; scales are powers of two, or any number, between ``2^-spread`` and ``2^spread``.

        >>> Symmetry.random((2, 3, 1), seed=0).widths
        (3,)
        """
        rng = np.random.default_rng(seed)
        exponents = [
            rng.integers(-spread, spread + 1, n) if dyadic else rng.uniform(-spread, spread, n) for n in widths[1:-1]
        ]
        return cls([rng.permutation(n) for n in widths[1:-1]], [2.0**e for e in exponents])

    @property
    def widths(self) -> tuple[int, ...]:
        """Of the hidden layers."""
        return tuple(s.size for s in self.scales)

    @property
    def is_identity(self) -> bool:
        return all((p == np.arange(p.size)).all() for p in self.permutations) and all(
            (s == 1).all() for s in self.scales
        )

    @property
    def is_dyadic(self) -> bool:
        """Whether all scales are powers of two: then nothing is rounded, short of overflow and underflow."""
        return all((np.frexp(s)[0] == 0.5).all() for s in self.scales)

    def __call__(self, net: Network) -> Network:
        """The network with its neurons permuted and rescaled; the function is the same."""
        parts = split(net)
        if parts.tail.widths[1:-1] != self.widths:
            raise InputError(f"symmetry: expected hidden widths {self.widths}, got {parts.tail.widths[1:-1]}")
        return parts.joined(rescale(permute(parts.tail, self.permutations), self.scales))

    def __matmul__(self, other: Symmetry) -> Symmetry:
        if self.widths != other.widths:
            raise InputError(f"symmetry: expected elements for the same widths, got {self.widths}, {other.widths}")
        pairs = zip(self.permutations, self.scales, other.permutations, other.scales, strict=True)
        composed = [(q[p], s * t[p]) for p, s, q, t in pairs]
        return Symmetry([p for p, _ in composed], [s for _, s in composed])

    def inverse(self) -> Symmetry:
        """The element that undoes this one."""
        back = [np.argsort(p) for p in self.permutations]
        return Symmetry(back, [1.0 / s[p] for s, p in zip(self.scales, back, strict=True)])

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Symmetry):
            return NotImplemented
        mine, theirs = (*self.permutations, *self.scales), (*other.permutations, *other.scales)
        return len(mine) == len(theirs) and all(np.array_equal(x, y) for x, y in zip(mine, theirs, strict=True))

    def __repr__(self) -> str:
        kind = "powers of two" if self.is_dyadic else "any scales"
        return f"Symmetry(hidden widths {'-'.join(map(str, self.widths))}, {kind})"
