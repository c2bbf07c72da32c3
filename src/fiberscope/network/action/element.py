"""Elements of groups that permute neurons and multiply them by positive factors, as data.

Two layers of meaning. A :class:`Monomial` is what happens to one index set of ``n`` neurons, or to several equal ones
side by side. An :class:`Element` is one monomial for every part of a model, by name. Parts may sit inside others: the
dimensions of a head move with their head, and each head may order its own dimensions. Such a part names its *parents*,
the outermost first, and has one copy for every member of the last one; so elements compose as a wreath product does.

Nothing here knows networks or tensors: they are acted on in ``network.action.chain`` and in ``modules.action``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from fiberscope.errors import InputError
from fiberscope.numerics.arrays import frozen, real_array
from fiberscope.numerics.floats import FloatArray, IntArray
from fiberscope.results import Result


def is_permutation(value: Any, size: int, copies: int | None = None) -> bool:
    """Whether these are the integers from 0 to ``size - 1``, each once; with ``copies``, in each of that many rows.

    >>> is_permutation([1, 0], 2), is_permutation([1.0, 0.0], 2), is_permutation([1, 1], 2)
    (True, False, False)
    """
    try:
        order = np.asarray(value)
    except ValueError:  # ragged
        return False
    shape = (size,) if copies is None else (copies, size)
    integral = order.dtype.kind in "iu" or order.size == 0
    return order.shape == shape and integral and bool((np.sort(order) == np.arange(size)).all())


def permutation(value: Any, size: int, name: str, copies: int | None = None) -> IntArray:
    """A permutation of ``0, ..., size - 1`` as integers, or rows of them; :class:`InputError` for anything else.

    >>> permutation([1, 0, 2], 2, "order")
    Traceback (most recent call last):
    fiberscope.errors.InputError: order: expected a permutation of 0 to 1, got [1, 0, 2]
    """
    if not is_permutation(value, size, copies):
        short = repr(value.tolist() if isinstance(value, np.ndarray) else value)
        raise InputError(f"{name}: expected a permutation of 0 to {size - 1}, got {short[:60]}")
    return np.asarray(value, dtype=np.int64)


def positive(value: Any, size: int, name: str, copies: int | None = None) -> FloatArray:
    """That many positive finite numbers, or rows of them; :class:`InputError` for anything else."""
    factors = real_array(value, name)
    if factors.shape != ((size,) if copies is None else (copies, size)) or not (factors > 0).all():
        raise InputError(f"{name}: expected {size} positive numbers, got {str(factors.tolist())[:60]}")
    return factors


@dataclass(frozen=True, eq=False)
class Monomial(Result):
    """Permutations with positive factors of ``n`` coordinates, one in each of ``copies`` equal index sets.

    New coordinate ``i`` of copy ``c`` is ``scales[c, i]`` times old coordinate ``orders[c, i]``; both arrays are
    ``(copies, n)``. If copies move as well, by a parent, then they move first.

    >>> g = Monomial.single([1, 0], [2.0, 4.0])
    >>> (g @ g).scales, (g @ g.inverse()).is_identity
    (array([[8., 8.]]), True)
    """

    orders: IntArray
    scales: FloatArray
    parents: tuple[str, ...] = ()

    def __init__(self, orders: Any, scales: Any = None, parents: Any = (), name: str = "element") -> None:
        copies, n = len(orders), len(orders[0]) if len(orders) else 0
        order = np.array(permutation(orders, n, f"{name}: permutation", copies))
        if scales is not None and len(scales) != copies:
            raise InputError(f"{name}: expected as many scales as permutations, got {len(scales)}")
        factors = np.ones((copies, n)) if scales is None else positive(scales, n, f"{name}: scales", copies)
        order.setflags(write=False)
        object.__setattr__(self, "orders", order)
        object.__setattr__(self, "scales", frozen(factors))
        object.__setattr__(self, "parents", tuple(parents))

    @classmethod
    def single(cls, order: Any, scales: Any = None, name: str = "element") -> Monomial:
        """One copy."""
        return cls([order], None if scales is None else [scales], name=name)

    @classmethod
    def identity(cls, n: int, copies: int = 1, parents: Any = ()) -> Monomial:
        return cls(np.tile(np.arange(n), (copies, 1)), None, parents)

    @property
    def copies(self) -> int:
        return len(self.orders)

    @property
    def size(self) -> int:
        """Coordinates of each copy."""
        return int(self.orders.shape[1])

    @property
    def is_identity(self) -> bool:
        return bool((self.orders == np.arange(self.size)).all() and (self.scales == 1).all())

    @property
    def is_dyadic(self) -> bool:
        """Whether all scales are powers of two: then nothing is rounded, short of overflow and underflow."""
        return bool((np.frexp(self.scales)[0] == 0.5).all())

    def places(self, outer: IntArray | None = None) -> IntArray:
        """Where every coordinate comes from, counted through all copies; ``outer`` says it of the copies themselves."""
        start = np.arange(self.copies) if outer is None else outer
        return np.asarray((start[:, None] * self.size + self.orders).ravel())

    def after(self, other: Monomial, outer: IntArray | None = None) -> Monomial:
        """First ``other``, then this one, where this one's copy ``c`` was copy ``outer[c]`` before."""
        if self.orders.shape != other.orders.shape or self.parents != other.parents:
            raise InputError(f"element: expected parts of one shape, got {self.orders.shape}, {other.orders.shape}")
        old = self.places(outer)
        shape = self.orders.shape
        return Monomial(
            other.orders.ravel()[old].reshape(shape),
            self.scales * other.scales.ravel()[old].reshape(shape),
            self.parents,
        )

    def __matmul__(self, other: Monomial) -> Monomial:
        return self.after(other)

    def inverse(self, outer: IntArray | None = None) -> Monomial:
        """What undoes this one, with the move ``outer`` of the copies undone, too."""
        back = np.arange(self.copies) if outer is None else np.argsort(outer)
        orders = np.argsort(self.orders, axis=1)[back]
        return Monomial(orders, 1.0 / np.take_along_axis(self.scales[back], orders, axis=1), self.parents)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Monomial):
            return NotImplemented
        same = np.array_equal(self.orders, other.orders) and np.array_equal(self.scales, other.scales)
        return same and self.parents == other.parents

    def _answer(self) -> Iterator[tuple[str, Any]]:
        """Factors and parents only where there are any."""
        yield "permutations", self.orders
        if not (self.scales == 1).all():
            yield "scales", self.scales
        if self.parents:
            yield "parents", self.parents

    @classmethod
    def from_dict(cls, found: Any, name: str = "element") -> Monomial:
        """What :meth:`to_dict` gave, checked."""
        if not isinstance(found, Mapping) or not isinstance(found.get("permutations"), list):
            raise InputError(f"{name}: expected an object with permutations")
        parents, scales = found.get("parents", []), found.get("scales")
        named = isinstance(parents, list) and all(isinstance(one, str) for one in parents)
        if not named or not isinstance(scales, list | None):
            raise InputError(f"{name}: expected scales as lists of numbers and parents by name")
        if not all(isinstance(row, list) for row in found["permutations"]):
            raise InputError(f"{name}: expected a list of permutations")
        return cls(found["permutations"], scales, parents, name)


class Element(Mapping[str, Monomial]):
    """A monomial for every part of a model, by name; parts that are not mentioned stay as they are.

    ``(g @ h)`` is ``h`` first and then ``g``. A part inside another has as many copies as that has members.

    >>> g = Element({"heads": Monomial.single([1, 0]), "dims": Monomial([[0, 1], [1, 0]], parents=["heads"])})
    >>> (g @ g)["dims"].orders.tolist()
    [[1, 0], [1, 0]]
    >>> (g.inverse() @ g).is_identity, Element.from_dict(g.to_dict()) == g
    (True, True)
    """

    def __init__(self, parts: Mapping[str, Monomial | Any]) -> None:
        self._parts = {
            name: part if isinstance(part, Monomial) else Monomial.single(part, name=f"group {name}")
            for name, part in parts.items()
        }
        for name, part in self._parts.items():
            for k, outer in enumerate(part.parents):
                if outer in self._parts and self._parts[outer].parents != part.parents[:k]:
                    raise InputError(f"element: expected {outer} inside {' in '.join(part.parents[:k]) or 'nothing'}")
            above = self._above(part)
            members = 1 if above is None else above.copies * above.size
            direct = above is not None and len(above.parents) + 1 == len(part.parents)
            if part.copies % members or (direct and part.copies != members):
                raise InputError(f"element: expected {members} copies of {name}, got {part.copies}")

    def __getitem__(self, name: str) -> Monomial:
        return self._parts[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._parts)

    def __len__(self) -> int:
        return len(self._parts)

    @property
    def is_identity(self) -> bool:
        return all(part.is_identity for part in self._parts.values())

    def __matmul__(self, other: Element) -> Element:
        found: dict[str, Monomial] = {}
        for name in dict.fromkeys((*self, *other)):
            like = self[name] if name in self else other[name]
            mine, theirs = (
                part.get(name) or Monomial.identity(like.size, like.copies, like.parents) for part in (self, other)
            )
            found[name] = mine.after(theirs, self._outer(like))
        return Element(found)

    def inverse(self) -> Element:
        """The element that undoes this one."""
        return Element({name: part.inverse(self._outer(part)) for name, part in self.items()})

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Element):
            return NotImplemented
        return self._parts == other._parts

    __hash__ = None  # type: ignore[assignment]

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {name: part.to_dict() for name, part in self.items()}

    @classmethod
    def from_dict(cls, found: Any) -> Element:
        """What :meth:`to_dict` gave, checked."""
        if not isinstance(found, Mapping):
            raise InputError(f"element: expected an object with a part per name, got {type(found).__name__}")
        return cls({name: Monomial.from_dict(part, f"group {name}") for name, part in found.items()})

    def __repr__(self) -> str:
        return f"Element({', '.join(f'{name}: {part.size}' for name, part in self.items())})"

    def _outer(self, part: Monomial) -> IntArray | None:
        """Where the copies of a part come from, by the parts above it; None if they stay."""
        above = self._above(part)
        if above is None:
            return None
        places = above.places(self._outer(above))
        between = np.arange(part.copies // len(places))  # members of parts between the two, which are not mentioned
        return np.asarray((places[:, None] * len(between) + between).ravel())

    def _above(self, part: Monomial) -> Monomial | None:
        """The innermost of the parts around one that is mentioned."""
        return next((self._parts[name] for name in reversed(part.parents) if name in self._parts), None)


def random_scales(rng: np.random.Generator, shape: tuple[int, ...], spread: int, dyadic: bool) -> FloatArray:
    """Factors between ``2^-spread`` and ``2^spread``: powers of two, or any."""
    draw: Callable[..., Any] = rng.integers if dyadic else rng.uniform
    return np.asarray(2.0 ** draw(-spread, spread + int(dyadic), shape))
