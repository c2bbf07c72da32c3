"""What a walk over a program asks of the numbers it computes in.

A program is run forward, with its switches decided by the values or by signs that are given, and run backward, in one
and the same way over floats, bounds, balls or residues; see :mod:`fiberscope.network.walk`. An algebra says how one
step is made. Values are batches ``(..., features)``; a leading axis of length one stands for all.

=================  =========================================================  ==================================
module             values                                                     has
=================  =========================================================  ==================================
``floating``       floats, 64 or 32 bits                                      everything
``bounded``        float and bound of its error                               order, fixed switches, way back
``ball``           Arb balls; exact at a precision that rounds nothing        order, fixed switches
``residue``        residues modulo a prime                                    fixed switches, way back, products
``dyadic``         integers with a common exponent, exact                     rows with fixed switches
``twofold``        pairs of floats and bound of their error                   rows with fixed switches
``bits``           what can be other than zero                                fixed switches
=================  =========================================================  ==================================

Others live beside their only reader and need no more than :class:`Evaluation`: ranges of values, deviations by rounding
and normal forms where equality is decided, spans of bits in :mod:`fiberscope.dimension.spans`, tracked values of the
planar engine, lengths of gradients in :mod:`fiberscope.geometry.distances`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from enum import Enum
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

import numpy as np

if TYPE_CHECKING:
    from fiberscope.numerics.floats import BoolArray, FloatArray, IntArray, ObjectArray


V = TypeVar("V")


class LinearMap(Protocol):
    """What an algebra needs of a linear operator; batches are ``(rows, features)``."""

    @property
    def in_size(self) -> int: ...
    @property
    def out_size(self) -> int: ...
    @property
    def fan_in(self) -> int: ...
    @property
    def roundings(self) -> int: ...
    @property
    def coefficients(self) -> FloatArray: ...
    @property
    def stored_matrix(self) -> FloatArray | None: ...
    @property
    def stored_diagonal(self) -> FloatArray | None: ...
    def apply(self, X: FloatArray) -> FloatArray: ...
    def apply_abs(self, X: FloatArray) -> FloatArray: ...
    def bound_abs(self, X: FloatArray) -> FloatArray | None: ...
    def apply_scalars(self, X: ObjectArray) -> ObjectArray: ...
    def adjoint(self, Y: FloatArray) -> FloatArray: ...
    def sparse(self) -> Any: ...
    def dense(self) -> FloatArray: ...
    def with_coefficients(self, coefficients: FloatArray) -> LinearMap: ...
    def stages(self) -> Sequence[LinearMap]: ...


class Constant(Enum):
    """Where the constant 1 stands in a batch, and with it what a bias is added to.

    ``EVERYWHERE``: rows are points. ``LAST``: rows are coefficients of affine functions of the input, the constant term
    in the last one. ``NOWHERE``: rows are derivatives.
    """

    EVERYWHERE = "everywhere"
    LAST = "last"
    NOWHERE = "nowhere"


class Evaluation(Protocol[V]):
    """All that evaluation needs: values decide at every switch themselves."""

    def affine(self, operator: LinearMap, bias: FloatArray | None, value: V) -> V: ...
    def add(self, values: Sequence[V]) -> V: ...
    def concat(self, values: Sequence[V], order: IntArray | None) -> V: ...
    def piecewise(self, value: V, slopes: FloatArray) -> V: ...
    def window_max(self, value: V, windows: IntArray) -> V: ...


class Algebra(ABC, Generic[V]):
    """An :class:`Evaluation` that can also take its switches as given, and perhaps go back.

    Not every algebra has all of it: residues have no order, balls no way back. What is missing raises.
    """

    constant = Constant.EVERYWHERE

    # -- affine maps, sums, values side by side --------------------------------------------------------------

    @abstractmethod
    def take(self, values: FloatArray) -> V:
        """Floats as they are."""

    @abstractmethod
    def apply(self, stage: LinearMap, value: V) -> V:
        """A linear map that is no composition."""

    def shift(self, value: V, offset: FloatArray) -> V:
        """The bias ``(features,)`` added, times the constant 1 of the batch."""
        raise self._lacks("bias on its own")

    def add(self, values: Sequence[V]) -> V:
        """The sum of values."""
        raise self._lacks("sums")

    @abstractmethod
    def concat(self, values: Sequence[V], order: IntArray | None) -> V:
        """Values side by side, then taken in this order."""

    def difference(self, one: V, other: V) -> V:
        """``one - other``."""
        raise self._lacks("differences")

    def affine(self, operator: LinearMap, bias: FloatArray | None, value: V) -> V:
        """``operator(value) + bias``, stage by stage."""
        for stage in operator.stages():
            value = self.apply(stage, value)
        return value if bias is None else self.shift(value, bias)

    # -- switches that are given -----------------------------------------------------------------------------

    def gate(self, value: V, active: BoolArray, slopes: FloatArray | None) -> V:
        """``value`` where active, ``slopes * value`` elsewhere; None for slopes that are all zero.

        Leading axes of ``active`` are the first ones of the value: one vector for all, or one for each point or cell.
        """
        raise self._lacks("switches that are given")

    def pick(self, value: V, index: IntArray) -> V:
        """The entries of these numbers: the winners of windows; leading axes as in :meth:`gate`."""
        raise self._lacks("switches that are given")

    # -- switches that values decide -------------------------------------------------------------------------

    def piecewise(self, value: V, slopes: FloatArray) -> V:
        """``value`` where it is positive, ``slopes * value`` elsewhere."""
        raise self._lacks("order")

    def window_max(self, value: V, windows: IntArray) -> V:
        """The largest entry of every window; index -1 marks an input that a window does not have."""
        raise self._lacks("order")

    def clip(self, value: V, low: FloatArray, high: FloatArray) -> V | None:
        """``value`` between two bounds; None where the algebra has no shorter way than two switches."""
        return None

    def window_margins(self, value: V, windows: IntArray) -> V:
        """By how much every input of every window beats the best of the others, ``(..., windows * size)``."""
        raise self._lacks("order")

    def active(self, value: V) -> BoolArray:
        """Which entries are positive."""
        raise self._lacks("order")

    def winners(self, value: V, windows: IntArray) -> IntArray:
        """The input that every window takes its value from, ``(..., windows)``: the first that no other beats."""
        raise self._lacks("order")

    # -- the way back: transposes of the above ---------------------------------------------------------------

    def adjoint(self, stage: LinearMap, value: V) -> V:
        """The transpose of :meth:`apply`."""
        raise self._lacks("way back")

    def scatter(self, value: V, index: IntArray, size: int) -> V:
        """The transpose of :meth:`pick` from ``size`` entries: every entry goes to its place, and there they add up."""
        raise self._lacks("way back")

    def split(self, value: V, order: IntArray | None, sizes: Sequence[int]) -> list[V]:
        """The transpose of :meth:`concat`."""
        raise self._lacks("way back")

    def _lacks(self, what: str) -> NotImplementedError:
        return NotImplementedError(f"{type(self).__name__} has no {what}")


class ArrayAlgebra(Algebra[Any]):
    """What all algebras share whose values are single arrays."""

    def __init__(self, constant: Constant = Constant.EVERYWHERE) -> None:
        self.constant = constant

    @abstractmethod
    def _plus(self, value: Any, offset: FloatArray) -> Any:
        """A bias added to rows."""

    def shift(self, value: Any, offset: FloatArray) -> Any:
        if self.constant is Constant.EVERYWHERE:
            return self._plus(value, offset)
        if self.constant is Constant.NOWHERE:
            return value
        result = value.copy()
        result[..., -1, :] = self._plus(value[..., -1, :], offset)
        return result

    def concat(self, values: Sequence[Any], order: IntArray | None) -> Any:
        return joined(values, order)

    def pick(self, value: Any, index: IntArray) -> Any:
        return picked(value, index)

    def split(self, value: Any, order: IntArray | None, sizes: Sequence[int]) -> list[Any]:
        laid = value if order is None else value[..., np.argsort(order)]
        return np.split(laid, list(accumulate(sizes))[:-1], axis=-1)


class Ring(ArrayAlgebra):
    """An algebra with a way back whose values can be multiplied with each other: what derivatives are made of."""

    @abstractmethod
    def multiply(self, a: Any, b: Any) -> Any:
        """Entrywise product."""

    @abstractmethod
    def total(self, a: Any, axes: tuple[int, ...]) -> Any:
        """Sum over some axes."""

    @abstractmethod
    def batched(self, a: Any, b: Any) -> Any:
        """``(k, r, q)`` times ``(k, q, n)``; ``a`` may have one block for all."""

    @abstractmethod
    def outer_into(self, delta: Any, inputs: Any, out: Any, fresh: bool) -> None:
        """``out[n, o, i, j] = delta[n, o, i] inputs[n, j]``, or added to what stands there if not ``fresh``."""

    @abstractmethod
    def empty(self, shape: tuple[int, ...]) -> Any:
        """An array to be filled."""

    @abstractmethod
    def _scattered(self, rows: Any, index: IntArray, size: int) -> Any:
        """As :meth:`scatter` on rows ``(n, windows)`` with a row of places each."""

    def gate(self, value: Any, active: BoolArray, slopes: FloatArray | None) -> Any:
        own = aligned(active, value.ndim)
        if slopes is None:
            # A product is faster than a choice and the same: values are finite, and residues below 2^61.
            return value * own
        return np.where(own, value, self.multiply(value, self.take(slopes)))

    def scatter(self, value: Any, index: IntArray, size: int) -> Any:
        places = aligned(index, value.ndim)
        shape = np.broadcast_shapes(value.shape, places.shape)
        rows, where = (np.broadcast_to(x, shape).reshape(-1, shape[-1]) for x in (value, places))
        return self._scattered(rows, where, size).reshape(*shape[:-1], size)


def on_rows(act: Callable[[Any], Any], value: Any) -> Any:
    """A map of rows ``(n, features)`` applied to a value with any number of leading axes."""
    if value.ndim == 2:
        return act(value)
    result = act(value.reshape(-1, value.shape[-1]))
    return result.reshape(*value.shape[:-1], result.shape[-1])


def aligned(choice: Any, ndim: int) -> Any:
    """Choices ``(cells, n)`` for values ``(cells, ..., features)``; one vector for all stays as it is."""
    if choice.ndim in (1, ndim):
        return choice
    return choice.reshape(*choice.shape[:-1], *(1,) * (ndim - choice.ndim), choice.shape[-1])


def joined(values: Sequence[Any], order: IntArray | None) -> Any:
    """Arrays side by side along their last axis; axes of length one are repeated where others are longer."""
    lead = np.broadcast_shapes(*(x.shape[:-1] for x in values))
    result = np.concatenate([np.broadcast_to(x, (*lead, x.shape[-1])) for x in values], axis=-1)
    return result if order is None else result[..., order]


def picked(value: Any, index: IntArray) -> Any:
    """Entries of the last axis, one choice for all or one for each of the first rows."""
    if index.ndim == 1:
        return value[..., index]
    return np.take_along_axis(value, aligned(index, value.ndim), axis=-1)


def gather(value: Any, windows: IntArray, absent: Any) -> Any:
    """Inputs of every window, ``(..., windows, size)``; index -1 marks padding and yields ``absent``."""
    found = value[..., windows]
    if (windows < 0).any():
        found = np.where(windows < 0, absent, found)
    return found
