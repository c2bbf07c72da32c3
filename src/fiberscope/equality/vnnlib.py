"""Questions in VNN-LIB: the input set of a 1.0 file as a domain, and two-network queries of version 2.0.

Of the language, this reads what such questions are made of: linear constraints on inputs joined by ``and``, equal
inputs of two networks, and comparisons ``Y_g[i] > Y_f[i] + e`` or ``Y_g[i] < Y_f[i] - e`` of outputs joined by ``and``
and ``or``. Everything else is refused by name. Bounds of inputs become the nearest float64; margins stay as they are.

A query asks for an input at which its constraints hold. If ``|f - g| <= e`` on the input set, no comparison holds
anywhere, so there is none. If it does not, the constraints are evaluated exactly at the counterexample. This module
reads and evaluates; who answers is ``queries``.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from fiberscope.errors import InputError
from fiberscope.geometry.domains import Box, Domain, Polytope

Variable = tuple[str, int]
"""The name of an input or output, and its place."""
Linear = dict[Variable | None, Fraction]
"""A sum of multiples of variables; None is the constant."""

_TOKEN = re.compile(r"\s*(?:;[^\n]*|([()])|([^\s();]+))")
_COMPARE = {"<=": (1, False), "<": (1, True), ">=": (-1, False), ">": (-1, True)}
_DEEPEST = 100


@dataclass(frozen=True, slots=True)
class Above:
    """An output of the second network is above (``sign`` 1) or below (-1) that of the first by more than ``margin``."""

    output: int
    sign: int
    margin: Fraction

    def holds(self, gaps: Sequence[Fraction]) -> bool:
        """``gaps`` are the outputs of the second network minus those of the first."""
        return self.sign * gaps[self.output] > self.margin


@dataclass(frozen=True, slots=True)
class Joined:
    """``and`` or ``or`` of comparisons."""

    word: str
    parts: tuple[Any, ...]

    def holds(self, gaps: Sequence[Fraction]) -> bool:
        """Whether it is true of these gaps."""
        return (all if self.word == "and" else any)(part.holds(gaps) for part in self.parts)

    def comparisons(self) -> list[Above]:
        """All of them."""
        return [c for part in self.parts for c in ([part] if isinstance(part, Above) else part.comparisons())]

    def contradicts(self) -> bool:
        """Whether it is false whatever the outputs are, as far as single ``and``s tell."""
        if self.word == "or":
            return all(isinstance(part, Joined) and part.contradicts() for part in self.parts)
        if any(isinstance(part, Joined) and part.contradicts() for part in self.parts):
            return True
        sides = {(part.output, part.sign) for part in self.parts if isinstance(part, Above) and part.margin >= 0}
        return any((output, -sign) in sides for output, sign in sides)


@dataclass(frozen=True, slots=True)
class Query:
    """A two-network query: names of the networks, inputs and outputs, a domain, and the constraints on outputs."""

    networks: tuple[str, str]
    inputs: tuple[str, str]
    outputs: tuple[str, str]
    sizes: tuple[int, int]
    domain: Domain
    constraints: Joined

    @property
    def tolerance(self) -> float:
        """The largest float up to the smallest margin of a comparison: within it, none holds."""
        margin = min(c.margin for c in self.constraints.comparisons())
        nearest = float(margin)
        return nearest if nearest <= margin else math.nextafter(nearest, 0.0)

    @property
    def impossible(self) -> bool:
        """Whether no outputs at all satisfy the constraints as they are written."""
        return self.constraints.contradicts()

    def intended(self) -> Query:
        """The query for any output that differs by more than its margin, whatever joins the comparisons in the file."""
        return Query(
            self.networks, self.inputs, self.outputs, self.sizes, self.domain,
            Joined("or", tuple(self.constraints.comparisons())),
        )  # fmt: skip


def read_domain(path: Path | str, inputs: int) -> Domain:
    """The input set of a VNN-LIB file for networks with so many inputs; what it says of outputs is passed over.

    >>> import tempfile
    >>> text = "(declare-const X_0 Real)(declare-const Y_0 Real)(assert (<= X_0 0.5))(assert (>= X_0 -1))"
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = Path(f"{folder}/a.vnnlib").write_text(text)
    ...     read_domain(f"{folder}/a.vnnlib", 1)
    Box([-1, 0.5])
    """
    trees = _read(path)
    names = _declared(path, trees)
    shown = [name for name, (kind, _) in names.items() if kind == "input"]
    if len(shown) != 1 or names[shown[0]][1] != inputs:
        got = " and ".join(f"{names[name][1]}" for name in shown) or "none"
        raise InputError(f"{path}: expected {inputs} inputs, those of the network, got {got}")
    parts = [_on_inputs(path, tree[1], names) for tree in trees if tree[0] == "assert"]
    return _domain(path, [row for part in parts if part is not None for row in part], shown[0], inputs)


def read_query(path: Path | str) -> Query:
    """The two-network query in a VNN-LIB 2.0 file.

    >>> import tempfile
    >>> text = '''
    ... (declare-network f (declare-input X real [1]) (declare-output Y real [1]))
    ... (declare-network g (isomorphic-to f) (declare-input U real [1]) (declare-output V real [1]))
    ... (assert (and (>= X[0] -1.0) (<= X[0] 1.0))) (assert (== X[0] U[0]))
    ... (assert (or (> V[0] (+ Y[0] 0.25)) (< V[0] (- Y[0] 0.25))))'''
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = Path(f"{folder}/q.vnnlib").write_text(text)
    ...     found = read_query(f"{folder}/q.vnnlib")
    >>> found.domain, found.tolerance
    (Box([-1, 1]), 0.25)
    """
    trees = _read(path)
    names = _declared(path, trees)
    nets = [tree for tree in trees if tree[0] == "declare-network"]
    if len(nets) != 2:
        raise InputError(f"{path}: expected a query about two networks, got {len(nets)}")
    parts = {kind: [name for name, (mine, _) in names.items() if mine == kind] for kind in ("input", "output")}
    if any(len(found) != 2 for found in parts.values()):
        raise InputError(f"{path}: expected one input and one output of each network")
    sizes = [{names[name][1] for name in found} for found in parts.values()]
    if any(len(each) > 1 for each in sizes):
        raise InputError(f"{path}: expected networks with the same inputs and outputs")
    (n,), (m,) = sizes
    first, second = parts["input"]
    rows: list[tuple[Linear, bool]] = []
    shared: set[int] = set()
    outputs: list[Any] = []
    for tree in (tree[1] for tree in trees if tree[0] == "assert"):
        place = _same_input(tree, names, (first, second))
        found = None if place is not None else _on_inputs(path, tree, names)
        if place is not None:
            shared.add(place)
        elif found is not None:
            rows += found
        else:
            outputs.append(_on_outputs(path, tree, names, parts["output"]))
    if shared != set(range(n)):
        raise InputError(f"{path}: expected the inputs of both networks to be equal, {n} of them, got {len(shared)}")
    if not outputs:
        raise InputError(f"{path}: expected constraints on the outputs, got none")
    moved = [({(first, v[1]) if v is not None else None: c for v, c in row.items()}, strict) for row, strict in rows]
    domain = _domain(path, moved, first, n)
    pair = (str(nets[0][1]), str(nets[1][1]))
    return Query(
        pair, (first, second), (parts["output"][0], parts["output"][1]), (n, m), domain, Joined("and", tuple(outputs))
    )


# -- reading ----------------------------------------------------------------------------------------------------------


def _read(path: Path | str) -> list[Any]:
    try:
        text = Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: expected a VNN-LIB file, got no text") from error
    stack: list[list[Any]] = [[]]
    for match in _TOKEN.finditer(text):
        bracket, word = match.groups()
        if bracket == "(":
            stack.append([])
        elif bracket == ")":
            if len(stack) == 1:
                raise InputError(f"{path}: expected a VNN-LIB file, got a bracket too many")
            done = stack.pop()
            stack[-1].append(done)
        elif word is not None:
            stack[-1].append(word)
        if len(stack) > _DEEPEST:
            raise InputError(f"{path}: brackets within brackets, more than {_DEEPEST}")
    trees = stack[0]
    if (
        len(stack) > 1
        or not trees
        or not all(isinstance(tree, list) and tree and isinstance(tree[0], str) for tree in trees)
    ):
        raise InputError(f"{path}: expected a VNN-LIB file, a list of declarations and assertions")
    known = {"vnnlib-version", "declare-const", "declare-network", "assert"}
    other = next((tree[0] for tree in trees if tree[0] not in known or (tree[0] == "assert" and len(tree) != 2)), None)
    if other is not None:
        raise InputError(f"{path}: expected declarations and assertions, got {str(other)[:40]!r}")
    return trees


def _declared(path: Path | str, trees: list[Any]) -> dict[str, tuple[str, int]]:
    """Inputs and outputs by name, with their sizes; ``X_3`` of version 1.0 is entry 3 of ``X``."""
    names: dict[str, tuple[str, int]] = {}
    for tree in trees:
        if tree[0] == "declare-const":
            match = re.fullmatch(r"([XY])_(\d{1,7})", str(tree[1])) if len(tree) == 3 else None
            if match is None:
                raise InputError(f"{path}: expected constants X_i and Y_i, got {str(tree[1])[:40]!r}")
            kind = "input" if match[1] == "X" else "output"
            names[match[1]] = (kind, max(names.get(match[1], (kind, 0))[1], int(match[2]) + 1))
        elif tree[0] == "declare-network":
            for part in tree[2:]:
                if not isinstance(part, list) or not part:
                    raise InputError(f"{path}: a network is not declared completely")
                if part[0] in ("isomorphic-to", "equal-to"):
                    continue
                if part[0] not in ("declare-input", "declare-output"):
                    raise InputError(f"{path}: expected inputs and outputs of a network, got {str(part[0])[:40]!r}")
                names[str(part[1])] = (str(part[0])[8:], _size(path, part[3:]))
    if not names:
        raise InputError(f"{path}: expected declarations of inputs and outputs, got none")
    return names


def _size(path: Path | str, shape: list[Any]) -> int:
    text = " ".join(map(str, shape)).strip("[] ")
    sizes = re.split(r"[\s,]+", text) if text else []
    if not all(re.fullmatch(r"\d{1,9}", size) for size in sizes):
        raise InputError(f"{path}: expected a shape, got {text[:40]!r}")
    return int(np.prod([int(size) for size in sizes])) if sizes else 1


def _variable(word: str, names: dict[str, tuple[str, int]]) -> Variable | None:
    match = re.fullmatch(r"([^\[\]]+)\[([\d,\s]+)\]", word) or re.fullmatch(r"([XY])_(\d{1,7})", word)
    if match is None or match[1] not in names or "," in match[2]:
        return None
    place = int(match[2])
    return (match[1], place) if place < names[match[1]][1] else None


def _linear(path: Path | str, tree: Any, names: dict[str, tuple[str, int]]) -> Linear:
    """A linear expression as a sum."""
    if isinstance(tree, str):
        variable = _variable(tree, names)
        if variable is not None:
            return {variable: Fraction(1)}
        if re.fullmatch(r"[+-]?(\d{1,400}(\.\d{0,400})?|\.\d{1,400})([eE][+-]?\d{1,3})?", tree):
            return {None: Fraction(tree)}
        raise InputError(f"{path}: expected a variable or a number, got {tree[:40]!r}")
    if not tree or tree[0] not in ("+", "-", "*"):
        raise InputError(f"{path}: expected +, - or *, got {str(tree[0] if tree else '()')[:40]!r}")
    parts = [_linear(path, part, names) for part in tree[1:]]
    if tree[0] == "*":
        plain = [part for part in parts if set(part) <= {None}]
        factor = Fraction(1)
        for part in plain:
            factor *= part.get(None, Fraction(0))
        rest = [part for part in parts if not set(part) <= {None}]
        if len(rest) > 1:
            raise InputError(f"{path}: expected linear constraints, got a product of variables")
        return {v: c * factor for v, c in (rest[0] if rest else {None: Fraction(1)}).items()}
    total: Linear = {}
    for k, part in enumerate(parts):
        sign = -1 if tree[0] == "-" and (k or len(parts) == 1) else 1
        for v, c in part.items():
            total[v] = total.get(v, Fraction(0)) + sign * c
    return total


def _compared(path: Path | str, tree: Any, names: dict[str, tuple[str, int]]) -> tuple[Linear, bool]:
    """A comparison as ``row <= 0``, and whether it is strict."""
    if not isinstance(tree, list) or len(tree) != 3 or tree[0] not in _COMPARE:
        raise InputError(f"{path}: expected a comparison, got {str(tree[0] if tree else tree)[:40]!r}")
    sign, strict = _COMPARE[tree[0]]
    gap = _linear(path, ["-", tree[1], tree[2]], names)
    return {v: sign * c for v, c in gap.items() if c or v is None}, strict


def _words(tree: Any) -> list[str]:
    return [tree] if isinstance(tree, str) else [word for part in tree for word in _words(part)]


def _kinds(tree: Any, names: dict[str, tuple[str, int]]) -> set[str]:
    found = {v for v in (_variable(word, names) for word in _words(tree)) if v is not None}
    return {names[v[0]][0] for v in found}


def _same_input(tree: Any, names: dict[str, tuple[str, int]], pair: tuple[str, str]) -> int | None:
    """The place of an input that both networks share, if this says so."""
    if not isinstance(tree, list) or len(tree) != 3 or tree[0] not in ("==", "="):
        return None
    sides = [_variable(side, names) if isinstance(side, str) else None for side in tree[1:]]
    if None in sides or {v[0] for v in sides if v is not None} != set(pair):
        return None
    places = {v[1] for v in sides if v is not None}
    return places.pop() if len(places) == 1 else None


def _on_inputs(path: Path | str, tree: Any, names: dict[str, tuple[str, int]]) -> list[tuple[Linear, bool]] | None:
    """Rows ``row <= 0`` of a constraint on inputs; None if it is one on outputs."""
    kinds = _kinds(tree, names)
    if kinds == {"output"}:
        return None
    if kinds != {"input"}:
        what = "inputs and outputs together" if kinds else "no variable of a network"
        raise InputError(f"{path}: expected constraints on inputs or on outputs, got one on {what}")
    if tree[0] == "and":
        found = [_on_inputs(path, part, names) for part in tree[1:]]
        return [row for part in found if part is not None for row in part]
    if tree[0] == "or" and len(tree) == 2:
        return _on_inputs(path, tree[1], names)
    if tree[0] == "or":
        raise InputError(f"{path}: expected one convex input set, got an `or` over inputs; ask about each part")
    if tree[0] in ("==", "=") and len(tree) == 3:
        return [_compared(path, ["<=", *tree[1:]], names), _compared(path, [">=", *tree[1:]], names)]
    return [_compared(path, tree, names)]


def _on_outputs(path: Path | str, tree: Any, names: dict[str, tuple[str, int]], pair: list[str]) -> Any:
    """A combination of comparisons of corresponding outputs."""
    if isinstance(tree, list) and tree and tree[0] in ("and", "or") and len(tree) > 1:
        return Joined(tree[0], tuple(_on_outputs(path, part, names, pair) for part in tree[1:]))
    row, strict = _compared(path, tree, names)
    terms = {v: c for v, c in row.items() if v is not None}
    places = {v[1] for v in terms}
    values = [terms.get((name, min(places, default=0)), Fraction(0)) for name in pair]
    margin = row.get(None, Fraction(0))
    if len(terms) != 2 or len(places) != 1 or values[0] != -values[1] or abs(values[0]) != 1:
        raise InputError(f"{path}: expected comparisons of corresponding outputs, Y_g[i] > Y_f[i] + e, got another one")
    if not strict or margin < 0:
        raise InputError(f"{path}: expected < or > and margins of at least 0 between outputs, got others")
    # row < 0 with a unit for g: g - f + margin < 0 is below, -(g - f) + margin < 0 is above
    return Above(places.pop(), 1 if values[1] < 0 else -1, margin)


def _domain(path: Path | str, rows: list[tuple[Linear, bool]], name: str, size: int) -> Domain:
    """A box where the rows bound single inputs, else a polytope; strict bounds count as closed ones."""
    low: list[Fraction | None] = [None] * size
    high: list[Fraction | None] = [None] * size
    general: list[tuple[dict[int, Fraction], Fraction]] = []
    for row, _ in rows:
        terms = {v[1]: c for v, c in row.items() if v is not None and c}
        shift = row.get(None, Fraction(0))
        if len(terms) != 1:
            general.append((terms, shift))
            continue
        ((k, c),) = terms.items()
        end = -shift / c
        ends, closer = (high, min) if c > 0 else (low, max)
        known = ends[k]
        ends[k] = end if known is None else closer(end, known)
    open_ends = [k for k in range(size) if low[k] is None or high[k] is None]
    if not general and not open_ends:
        least, most = ([float(v) for v in side if v is not None] for side in (low, high))
        empty = next((k for k in range(size) if not least[k] <= most[k]), None)
        if empty is not None:
            raise InputError(
                f"{path}: the input set is empty, {name}[{empty}] from {least[empty]:g} to {most[empty]:g}"
            )
        return Box(least, most)
    if not general and len(open_ends) == size and not rows:
        raise InputError(f"{path}: expected constraints on the inputs, got none")
    A, b = [], []
    for k in range(size):
        for edge, sign in ((low[k], -1.0), (high[k], 1.0)):
            if edge is not None:
                A.append([sign if j == k else 0.0 for j in range(size)])
                b.append(sign * float(edge))
    for terms, shift in general:
        A.append([float(terms.get(j, Fraction(0))) for j in range(size)])
        b.append(-float(shift))
    return Polytope(A, b)
