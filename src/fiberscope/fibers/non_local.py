"""Fibers are not local: each pair of hidden layers determines its parameters, and the whole network does not.

A network with three hidden layers has two pairs of consecutive ones: hidden layers 1 and 2 with layer 3 as an affine
output, and hidden layers 2 and 3 with layer 4 as the output, on all of the space that layer 2 sees. For both, the
sign condition for identifiability among generic parameters holds (paper on fibers, Theorem 5). Yet between layers 1 and
3 something happens that no pair sees: layer 2 behind layer 1 has a *bounded* image, and on that image no neuron of
layer 3 ever switches. So layers 3 and 4 are one affine map, which has many factorisations (section 7, appendix F.1).

With ``W_2 < 0 < b_2`` and ``a_1 >= 0`` the image of layer 2 lies in the box ``[0, b_2]``; with ``W_3 < 0`` and
``b_3 > |W_3| b_2`` all of layer 3 is positive there. The rows of ``(W_2 | b_2)`` and of ``(W_3 | b_3)`` have the signs
``(-, ..., - | +)``: neither dead, nor linear, nor hiding anything.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np

from fiberscope.errors import InputError, TooLargeError
from fiberscope.fibers.identifiability import identifiability
from fiberscope.network.network import Network
from fiberscope.numerics.arrays import real_array
from fiberscope.numerics.exact_arrays import nearest
from fiberscope.numerics.floats import FloatArray
from fiberscope.results import Result, hidden

_TRIES = 20
"""Draws until both pairs are shown to be identifiable; of few numbers on a grid some are not generic."""

_GRID = 2.0**-10
"""Weights are multiples of this, so that a shift by multiples of it is exact: the same real function."""


@dataclass(frozen=True, eq=False)
class NonLocal(Result):
    """A network made by :func:`non_localisable_network`.

    Parameters
    ----------
    network
        Three hidden layers.
    pairs
        Hidden layers 1 and 2 with layer 3 as affine output; hidden layers 2 and 3 with layer 4.
    bound
        ``b_2``: layer 2 has its image in ``[0, bound]``, on every input.
    slack
        The smallest value that a neuron of layer 3 can take on that box, from exact arithmetic; positive.
    """

    network: Network = field(metadata=hidden())
    pairs: tuple[Network, Network] = field(metadata=hidden())
    bound: FloatArray
    slack: float

    told = ("network=network.architecture", "pairs=_pair_sizes")

    def _pair_sizes(self) -> list[str]:
        return [pair.architecture for pair in self.pairs]

    def member(self, shift: Any, matrix: Any = None) -> Network:
        """Another parameter of the same function.

        Layer 3 becomes ``A z_3 + t``, and layer 4 takes it back: ``W_4 A^-1``, ``b_4 - W_4 A^-1 t``. Refused where a
        neuron of layer 3 could become negative. Without a matrix, and with a shift of a multiple of 2^-10
        of a few units at most, nothing is rounded: it is the same real function.

        Parameters
        ----------
        shift
            ``t``, ``(n_3,)`` or one number.
        matrix
            ``A``, ``(n_3, n_3)`` invertible.
        """
        w3, w4 = self.network.weights[2:]
        b3, b4 = self.network.biases[2:]
        t = np.broadcast_to(real_array(shift, "shift"), b3.shape) if np.ndim(shift) == 0 else real_array(shift, "shift")
        if t.shape != b3.shape:
            raise InputError(f"shift: expected one number or {b3.shape}, got shape {t.shape}")
        w, b, out = w3, b3 + t, w4
        if matrix is not None:
            a = real_array(matrix, "matrix", ndim=2)
            if a.shape != (len(b3), len(b3)):
                raise InputError(f"matrix: expected shape {(len(b3), len(b3))}, got {a.shape}")
            if np.linalg.matrix_rank(a) < len(b3):
                raise InputError("matrix: expected an invertible one, got one of lower rank")
            w, b, out = a @ w3, a @ b3 + t, w4 @ np.linalg.inv(a)
        if not all(np.isfinite(x).all() for x in (w, b, out, out @ t)):
            raise InputError("member: expected a shift and a matrix that stay within the range of floats")
        if not lowest(w, b, self.bound) > 0:
            raise InputError(
                f"member: expected layer 3 to stay positive, it could reach {lowest(w, b, self.bound):.3g}"
            )
        weights, biases = self.network.weights, self.network.biases
        return Network([*weights[:2], w, out], [*biases[:2], b, b4 - out @ t])

    def __repr__(self) -> str:
        pairs = " and ".join(pair.architecture for pair in self.pairs)
        return (
            f"NonLocal({self.network.architecture}: {pairs} are identifiable, the whole is not; slack {self.slack:.3g})"
        )


def lowest(weight: FloatArray, bias: FloatArray, bound: FloatArray) -> float:
    """The smallest entry of ``W z + b`` over the box ``0 <= z <= bound``, exact before it is rounded to a float.

    >>> lowest(np.array([[-1.0, 2.0]]), np.array([4.0]), np.array([3.0, 1.0]))
    1.0
    """
    top = [Fraction(x) for x in bound.tolist()]
    values = [
        Fraction(b) + sum((Fraction(w) * z for w, z in zip(row, top, strict=True) if w < 0), Fraction(0))
        for row, b in zip(weight.tolist(), bias.tolist(), strict=True)
    ]
    return float(nearest(np.array([min(values)], dtype=object))[0])


def non_localisable_network(widths: Sequence[int] = (3, 3, 2, 2, 1), seed: int = 0) -> NonLocal:
    """A network of three hidden layers that is not identifiable, though each pair of consecutive layers is.

    Parameters
    ----------
    widths
        ``(n_0, ..., n_4)`` with ``n_0 >= n_1 >= n_2 >= 2``.
    seed
        For the weights.

    Examples
    --------
    >>> found = non_localisable_network(seed=1)
    >>> from fiberscope.fibers.identifiability import identifiability
    >>> [identifiability(pair).identifiable for pair in found.pairs]
    [True, True]
    >>> other = found.member(shift=0.5)
    >>> X = np.random.default_rng(0).normal(size=(1000, 3)) * 10
    >>> bool(np.abs(found.network(X) - other(X)).max() < 1e-12)
    True
    """
    sizes = tuple(int(n) for n in widths)
    if len(sizes) != 5 or sizes != tuple(widths) or min(sizes) < 1:
        raise InputError(f"widths: expected five positive integers (n_0, ..., n_4), got {tuple(widths)}")
    if not sizes[0] >= sizes[1] >= sizes[2] >= 2:
        raise InputError(f"widths: expected n_0 >= n_1 >= n_2 >= 2, got {sizes}")
    rng = np.random.default_rng(seed)
    for _ in range(_TRIES):
        found = _drawn(sizes, rng)
        if all(identifiability(pair).identifiable for pair in found.pairs):
            return found
    raise TooLargeError(
        f"non-local network: expected widths for which pairs of layers can be shown to be identifiable, got {sizes}"
    )


def _drawn(sizes: tuple[int, ...], rng: np.random.Generator) -> NonLocal:
    """Random numbers with the signs that are needed; the pairs are identifiable if they are generic."""

    def draw(*shape: int) -> FloatArray:
        return np.round(rng.uniform(0.25, 1.5, shape) / _GRID) * _GRID

    weights = [draw(n, m) for m, n in itertools.pairwise(sizes)]
    biases = [draw(n) for n in sizes[1:]]
    weights[0] *= rng.choice([-1.0, 1.0], weights[0].shape)
    weights[1] *= -1.0
    weights[2] *= -1.0
    weights[3] *= rng.choice([-1.0, 1.0], weights[3].shape)
    biases[2] += np.ceil(np.abs(weights[2]) @ biases[1])
    net = Network(weights, biases)
    pairs = (Network(weights[:3], biases[:3]), Network(weights[1:], biases[1:]))
    return NonLocal(net, pairs, net.biases[1], lowest(weights[2], biases[2], biases[1]))
