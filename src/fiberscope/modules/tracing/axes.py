"""Index sets of tensors as expressions: what a view splits, a concatenation joins and a contraction identifies.

The index set of an axis is an *atom* (of which nothing is known but its size), a *product* (``i * n + j``, as after a
flatten of two axes) or a *sum* (places one after the other, as after a concatenation). Axes that an operation compares
entry by entry are *unified*: from then on they are one index set, however finely it has to be cut for that. An atom is
*pinned*, with a reason, where an operation tells its members apart; a permutation may move the members of all others.

Refining and unifying only ever shrink the group, so every order of operations is sound; where two expressions have no
common refinement (2 x 6 against 4 x 3 has one, 2 x 3 against 3 x 2 has none) both are pinned.

A *family* is what makes fused projections whole: an axis that is seen as ``(3, heads, dims)`` and then picked apart by
the first index has heads and dims of its own for each pick, not one that serves all three.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from math import prod


@dataclass(eq=False, slots=True)
class Atom:
    """An index set; once refined or identified with another, ``up`` says what it is."""

    size: int
    pin: str | None = None
    rigid: bool = False
    """Whether it was compared with an index set of other places: then not even factors may differ along it."""
    up: Expr | None = None
    family: tuple[Atom, tuple[Expr, ...]] | None = None
    """An atom with a pinned index, and what this atom is for each value of it."""
    indexed: list[Atom] = field(default_factory=list)
    """The atoms whose family this one indexes."""
    parts_of: list[Atom] = field(default_factory=list)
    """The atoms that turned out to be expressions with this one in them."""


@dataclass(frozen=True, slots=True)
class Product:
    """The last factor runs fastest."""

    factors: tuple[Expr, ...] = ()


@dataclass(frozen=True, slots=True)
class Sum:
    """Parts one after the other."""

    parts: tuple[Expr, ...]


Expr = Atom | Product | Sum
ONE = Product()
"""The index set of an axis with one place."""


def fresh(size: int, pin: str | None = None) -> Expr:
    """A new index set."""
    return ONE if size == 1 else Atom(size, pin)


def size_of(e: Expr) -> int:
    if isinstance(e, Atom):
        return e.size
    if isinstance(e, Product):
        return prod(size_of(f) for f in e.factors)
    return sum(size_of(p) for p in e.parts)


def product(factors: Sequence[Expr]) -> Expr:
    return normal(Product(tuple(factors)))


def normal(e: Expr) -> Expr:
    """The same index set with everything put in that is known: an atom, a product or a sum, the last two flat.

    >>> a = Atom(6)
    >>> a.up = Product((Atom(2), Atom(3)))
    >>> [f.size for f in normal(Product((a, Atom(5)))).factors]
    [2, 3, 5]
    """
    if isinstance(e, Atom):
        if e.up is None:
            return e
        e.up = normal(e.up)
        return e.up
    if _is_flat(e):
        return e
    if isinstance(e, Sum):
        parts: list[Expr] = []
        for p in map(normal, e.parts):
            parts += p.parts if isinstance(p, Sum) else [p]
        return parts[0] if len(parts) == 1 else Sum(tuple(parts))
    factors: list[Expr] = []
    for f in map(normal, e.factors):
        factors += f.factors if isinstance(f, Product) else [f]
    if len(factors) > 1:
        factors = _unfolded(factors)
    return factors[0] if len(factors) == 1 else Product(tuple(factors))


def _is_flat(e: Product | Sum) -> bool:
    """Whether it is normal as it stands: products of plain atoms, which most are."""
    if isinstance(e, Sum) or len(e.factors) == 1:
        return False
    return all(isinstance(f, Atom) and f.up is None and f.family is None for f in e.factors)


def _unfolded(factors: list[Expr]) -> list[Expr]:
    """Where an index stands left of its family, the two are a sum over the index."""
    for place, index in enumerate(factors):
        rest = factors[place + 1 :]
        if isinstance(index, Atom) and any(_family_of(leaf, index) for f in rest for leaf in leaves(f)):
            parts = tuple(product([at(f, index, i) for f in rest]) for i in range(index.size))
            found = product([*factors[:place], Sum(parts)])
            return list(found.factors) if isinstance(found, Product) else [found]
    return factors


def _family_of(atom: Atom, index: Atom) -> bool:
    return atom.family is not None and normal(atom.family[0]) is index


def at(e: Expr, index: Atom, i: int) -> Expr:
    """The expression for one value of an index: its family's members in the place of families."""
    e = normal(e)
    if isinstance(e, Atom):
        return normal(e.family[1][i]) if e.family is not None and normal(e.family[0]) is index else e
    if isinstance(e, Product):
        return product([at(f, index, i) for f in e.factors])
    return normal(Sum(tuple(at(p, index, i) for p in e.parts)))


def leaves(e: Expr) -> tuple[Atom, ...]:
    """The atoms of an expression, from left to right."""
    e = normal(e)
    if isinstance(e, Atom):
        return (e,)
    if isinstance(e, Product) and _is_flat(e):
        return e.factors  # type: ignore[return-value]
    inside = e.factors if isinstance(e, Product) else e.parts
    return tuple(leaf for part in inside for leaf in leaves(part))


def pin(e: Expr, reason: str) -> None:
    """No permutation of these from now on; the first reason stays."""
    for leaf in leaves(e):
        leaf.pin = leaf.pin or reason
        if leaf.family is not None:
            for member in leaf.family[1]:
                pin(member, reason)


def stiffen(e: Expr, reason: str) -> None:
    """Neither a permutation nor different factors from now on."""
    pin(e, reason)
    for leaf in leaves(e):
        leaf.rigid = True
        if leaf.family is not None:
            for member in leaf.family[1]:
                stiffen(member, reason)


def is_pinned(e: Expr) -> bool:
    return all(leaf.pin is not None for leaf in leaves(e))


def unify(x: Expr, y: Expr, reason: str) -> None:
    """Make two expressions of one size one index set; if they cannot be, pin both for this reason.

    >>> a, b, c = Atom(6), Atom(2), Atom(3)
    >>> unify(a, Product((b, c)), "")
    >>> normal(a) == Product((b, c))
    True
    >>> d = Product((Atom(3), Atom(2)))
    >>> unify(a, d, "a view")
    >>> b.pin, d.factors[0].pin
    ('a view', 'a view')
    """
    x, y = normal(x), normal(y)
    if x == y:
        return
    for leaf in (*leaves(x), *leaves(y)):
        _collapsed(leaf)
    x, y = normal(x), normal(y)
    done = size_of(x) == size_of(y) and _unified(x, y, reason)
    if not done:
        stiffen(x, reason)
        stiffen(y, reason)


def _unified(x: Expr, y: Expr, reason: str) -> bool:
    if x == y:
        return True
    if isinstance(x, Atom):
        _bind(x, y)
    elif isinstance(y, Atom):
        _bind(y, x)
    elif isinstance(x, Product) and isinstance(y, Product):
        inner = min(size_of(x.factors[-1]), size_of(y.factors[-1]))
        return _aligned(factor(x, inner), factor(y, inner), reason)
    elif isinstance(x, Sum) and isinstance(y, Sum):
        first = min(size_of(x.parts[0]), size_of(y.parts[0]))
        return _aligned(split(x, first), split(y, first), reason)
    else:
        parts, whole = (x, y) if isinstance(x, Sum) else (y, x)
        assert isinstance(parts, Sum) and isinstance(whole, Product)
        cut = split(whole, size_of(parts.parts[0]))
        if cut is not None:
            return _aligned(split(parts, size_of(parts.parts[0])), cut, reason)
        inner = size_of(whole.factors[-1])
        return _aligned(factor(parts, inner), factor(whole, inner), reason)
    return True


def _aligned(x: tuple[Expr, Expr] | None, y: tuple[Expr, Expr] | None, reason: str) -> bool:
    if x is None or y is None:
        return False
    for one, other in zip(x, y, strict=True):
        unify(one, other, reason)
    return True


def _bind(atom: Atom, e: Expr) -> None:
    """An atom that stands for itself becomes an expression."""
    for member in [atom, *atom.indexed]:
        _collapsed(member)
    if any(leaf is atom for leaf in leaves(e)):  # an index set that contains itself
        pin(e, "it would be a part of itself")
        return
    _become(atom, e)


def settle(axes: Sequence[Expr]) -> None:
    """In a tensor, a family stands beside its index, which has an axis of its own; any other becomes one atom."""
    whole = {id(normal(e)) for e in axes}
    for e in axes:
        collapse(e, lambda index: id(index) in whole)


def collapse(e: Expr, keep: Callable[[Atom], bool]) -> None:
    """Families in an expression whose index is not to be kept become one atom again."""
    for leaf in leaves(e):
        if leaf.family is not None:
            index = normal(leaf.family[0])
            if not isinstance(index, Atom) or not keep(index):
                _collapsed(leaf)


def _collapsed(atom: Atom) -> bool:
    """Whether the atom was a family; its members have become one."""
    if atom.family is None or atom.up is not None:
        return False
    (_, members), atom.family = atom.family, None
    _become(atom, members[0])
    for member in members[1:]:
        unify(members[0], member, "it is used for all picks of a fused layer at once")
    return True


def _become(atom: Atom, e: Expr) -> None:
    atom.up = e
    for leaf in leaves(e):
        leaf.parts_of.append(atom)
    if atom.pin is not None:
        (stiffen if atom.rigid else pin)(e, atom.pin)


def holders(atoms: Iterable[Atom]) -> set[Atom]:
    """These atoms and all that turned out to be made of them."""
    found: set[Atom] = set()
    stack = list(atoms)
    while stack:
        atom = stack.pop()
        if atom not in found:
            found.add(atom)
            stack += atom.parts_of
    return found


def factor(e: Expr, inner: int) -> tuple[Expr, Expr] | None:
    """An expression as a product of two, the second of the given size; None where there is none.

    >>> x = factor(Atom(12), 4)
    >>> [size_of(part) for part in x], factor(Product((Atom(3), Atom(4))), 6)
    ([3, 4], None)
    """
    e = normal(e)
    if inner == 1:
        return e, ONE
    if inner == size_of(e):
        return ONE, e
    if inner == 0 or size_of(e) % inner:
        return None
    if isinstance(e, Atom):
        if _collapsed(e):
            return factor(e, inner)
        halves = fresh(e.size // inner, e.pin), fresh(inner, e.pin)
        _bind(e, Product(halves))
        return halves
    if isinstance(e, Sum):
        cut = [factor(part, inner) for part in e.parts]
        if any(one is None for one in cut):
            return None
        pairs = [one for one in cut if one is not None]
        for _, second in pairs[1:]:
            unify(pairs[0][1], second, "its parts are seen as blocks of one size")
        return Sum(tuple(first for first, _ in pairs)), pairs[0][1]
    rest, last = product(e.factors[:-1]), e.factors[-1]
    size = size_of(last)
    if size > inner:
        cut_last = factor(last, inner)
        return None if cut_last is None else (product([rest, cut_last[0]]), cut_last[1])
    if inner % size:
        return None
    cut_rest = factor(rest, inner // size)
    return None if cut_rest is None else (cut_rest[0], product([cut_rest[1], last]))


def split(e: Expr, place: int) -> tuple[Expr, Expr] | None:
    """An expression as a sum of two, the first of the given size; None where there is none."""
    e = normal(e)
    if isinstance(e, Atom):
        if _collapsed(e):
            return split(e, place)
        halves = fresh(place, e.pin), fresh(e.size - place, e.pin)
        _bind(e, Sum(halves))
        return halves
    if isinstance(e, Sum):
        ends = list(accumulate(size_of(part) for part in e.parts))
        k = next(k for k, end in enumerate(ends) if place <= end)
        here = size_of(e.parts[k]) - (ends[k] - place)
        pair = split(e.parts[k], here) if place < ends[k] else None
        if place < ends[k] and pair is None:
            return None
        left = e.parts[: k + 1] if pair is None else (*e.parts[:k], pair[0])
        right = e.parts[k + 1 :] if pair is None else (pair[1], *e.parts[k + 1 :])
        return normal(Sum(left)), normal(Sum(right))
    rest = product(e.factors[1:])
    if place % size_of(rest):
        return None
    cut = split(e.factors[0], place // size_of(rest))
    return None if cut is None else (product([cut[0], rest]), product([cut[1], rest]))


def regroup(factors: Sequence[Expr], shape: Sequence[int]) -> list[Expr] | None:
    """The axes of another shape over the same places in the same order; None where they do not fit together."""
    left = [f for f in factors if size_of(f) != 1]
    if any(size_of(f) == 0 for f in left):
        return None
    found: list[Expr] = []
    for size in shape:
        taken: list[Expr] = []
        need = size
        while need > 1:
            if not left:
                return None
            first = left.pop(0)
            have = size_of(first)
            if have > need:
                cut = factor(first, have // need) if have % need == 0 else None
                if cut is None:
                    return None
                first, have = cut[0], need
                left.insert(0, cut[1])
            if need % have:
                return None
            taken.append(first)
            need //= have
        found.append(product(taken))
    return None if left else found
