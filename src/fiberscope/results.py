"""One base for answers: data for JSON, a table in a terminal or notebook and, where there is one, a frame or a picture.

An answer is a frozen dataclass that inherits :class:`Result`. Its fields are the answer; a field that is not part of it
opts out by ``field(metadata=hidden())``, one that bears another name outside says so by ``metadata=named(...)``, and
properties that belong to the answer are listed in the class attribute ``told``. Where rows are the answer the base is
:class:`Tabular`, where ``fiberscope.plot`` has a picture of it :class:`Pictured`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import fields
from enum import Enum
from fractions import Fraction
from html import escape
from importlib import import_module
from inspect import ismethod
from operator import attrgetter
from pathlib import PurePath
from typing import Any, ClassVar

from fiberscope.errors import InputError

Told = Callable[[Any], Any]
_HIDDEN = "fiberscope.hidden"
_NAME = "fiberscope.name"
_AS = "fiberscope.as"

FEW, LONG, ROWS = 8, 160, 20
"""Entries of an array, characters of a text and rows of a table that are shown to people; JSON holds everything."""


def hidden() -> dict[str, Any]:
    """Metadata of a field that is no part of the answer: what it was computed from, or too large to be told."""
    return {_HIDDEN: True}


def named(name: str = "", told: Told | None = None) -> dict[str, Any]:
    """Metadata of a field that the answer tells under another name, or as a function of the value."""
    return ({_NAME: name} if name else {}) | ({_AS: told} if told else {})


def plain(value: Any, odd: Callable[[float], Any] = lambda number: None, other: Told = repr) -> Any:
    """The same value as data for JSON.

    ``odd`` is told for the floats that JSON has no number for (NaN and the infinities; None unless something else is
    said), ``other`` for objects that are no data, such as networks and domains: their description.

    >>> import numpy as np
    >>> plain({"a": np.float64(0.1), "b": np.array([1.0, np.inf]), "c": (Fraction(1, 3), None)})
    {'a': 0.1, 'b': [1.0, None], 'c': ['1/3', None]}
    """
    if value is None or isinstance(value, bool | str) or type(value) is int:
        return value
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else odd(float(value))
    if isinstance(value, Result):
        return {name: plain(item, odd) for name, item in value._answer()}
    if isinstance(value, Enum):
        return plain(value.value, odd, other)
    if isinstance(value, int):
        return int(value)
    if isinstance(value, Fraction | PurePath):
        return str(value)
    if isinstance(value, Mapping):
        return {str(key): plain(item, odd, other) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item, odd, other) for item in value]
    if isinstance(value, AbstractSet):
        return [plain(item, odd, other) for item in sorted(value)]
    if hasattr(value, "tolist"):  # NumPy's arrays and scalars
        return plain(value.tolist(), odd, other)
    if hasattr(value, "to_dict"):
        return plain(value.to_dict(), odd, other)
    return other(value)


class Result:
    """An immutable answer; see the module."""

    __slots__ = ()

    told: ClassVar[tuple[str, ...]] = ()
    """Computed attributes that belong to the answer, as ``"name"``, ``"key=name"`` or ``"key=name.of.a.part"``; a
    method is called."""

    def _answer(self) -> Iterator[tuple[str, Any]]:
        """Names and values of the answer, before they become plain."""
        for item in fields(self):  # type: ignore[arg-type]  # the base of dataclasses is none itself
            if not item.metadata.get(_HIDDEN):
                value = getattr(self, item.name)
                change = item.metadata.get(_AS)
                yield item.metadata.get(_NAME, item.name), value if change is None else change(value)
        for text in self.told:
            name, _, path = text.rpartition("=")
            yield name or path, _at(self, path)

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON; numbers that JSON does not have (NaN, infinities) are None."""
        answer: dict[str, Any] = plain(self)
        return answer

    def _tables(self) -> Iterator[tuple[str, list[str], list[list[str]]]]:
        """What people see: a title, a head (empty for a list of names and values) and rows of text."""
        yield type(self).__name__, [], [[name, said(value)] for name, value in self._answer()]

    def __rich__(self) -> Any:
        """Tables for a terminal."""
        box, console, grid, text = (import_module(f"rich.{name}") for name in ("box", "console", "table", "text"))
        shown: list[Any] = []
        for title, head, rows in self._tables():
            table = grid.Table(box=box.SIMPLE_HEAD, show_header=bool(head))
            for name in head or ["", ""]:
                table.add_column(text.Text(name), overflow="fold")
            for row in rows:
                table.add_row(*map(text.Text, row))
            shown += [text.Text(title, "bold"), table]
        return console.Group(*shown)

    def _repr_html_(self) -> str:
        """Tables for a notebook."""
        return "".join(_html(*table) for table in self._tables())


class Tabular(Result):
    """An answer that is a table, with one row for every point, layer, bound or whatever it is about."""

    __slots__ = ()

    frame: ClassVar[str | tuple[str, ...]]
    """The attribute that holds the rows (results of one kind, or mappings; by name, or in order), or the attributes
    that are the columns; as in ``told``, a method is called."""

    def _columns(self) -> dict[str, list[Any]]:
        """Columns of one length; one of vectors or matrices becomes several columns."""
        if isinstance(self.frame, str):
            held = _at(self, self.frame)
            named = [({"name": key}, row) for key, row in held.items()] if isinstance(held, Mapping) else None
            rows = [first | _row(row) for first, row in named or [({}, row) for row in held]]
            return {name: [row.get(name) for row in rows] for row in rows[:1] for name in row}
        found: dict[str, list[Any]] = {}
        for name in self.frame:
            column = _at(self, name)
            if getattr(column, "ndim", 1) > 1:
                flat = column.reshape(len(column), math.prod(column.shape[1:]))
                found |= {f"{name}_{i}": list(flat[:, i]) for i in range(flat.shape[1])}
            elif column is not None:
                found[name] = list(column)
        return found

    def to_frame(self) -> Any:
        """The table as a ``pandas.DataFrame``; pandas is not a dependency and must be installed."""
        try:
            pandas = import_module("pandas")
        except ImportError as error:
            raise InputError("to_frame: expected the package pandas, not installed (pip install pandas)") from error
        return pandas.DataFrame(self._columns())

    def _tables(self) -> Iterator[tuple[str, list[str], list[list[str]]]]:
        columns = self._columns()
        held, inside = (_at(self, self.frame), ()) if isinstance(self.frame, str) else (self, self.frame)
        rest = [[name, said(value)] for name, value in self._answer() if value is not held and name not in inside]
        if rest:
            yield type(self).__name__, [], rest
        rows = list(zip(*columns.values(), strict=True))
        more = "" if len(rows) <= ROWS else f", the first {ROWS}"
        texts = [[said(value) for value in row] for row in rows[:ROWS]]
        yield f"{type(self).__name__}: {len(rows)} rows{more}", list(columns), texts


class Pictured(Result):
    """An answer that :mod:`fiberscope.plot` can draw."""

    __slots__ = ()

    picture: ClassVar[str]
    """The name of the function in :mod:`fiberscope.plot`, which takes the answer first."""

    def plot(self, *further: Any, **settings: Any) -> Any:
        """Draw it: matplotlib axes, from the function of :mod:`fiberscope.plot` that draws answers of this kind."""
        return getattr(import_module("fiberscope.plot"), self.picture)(self, *further, **settings)


def _at(answer: Result, path: str) -> Any:
    value = attrgetter(path)(answer)
    return value() if ismethod(value) else value


def _row(row: Any) -> dict[str, Any]:
    return dict(row._answer() if isinstance(row, Result) else row)


def said(value: Any) -> str:
    """A value in a few words for people.

    >>> import numpy as np
    >>> said(True), said(1 / 3), said(np.arange(3)), said(np.zeros((50, 2)))
    ('yes', '0.333333', '0, 1, 2', '50 x 2 numbers from 0 to 0')
    """
    if value is None or isinstance(value, str):
        return _short(value or "-")
    if hasattr(value, "dtype"):
        return _said_array(value)
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, Mapping):
        return _said_some([f"{key}: {said(item)}" for key, item in value.items()])
    if isinstance(value, Sequence):
        return _said_some([said(item) for item in value])
    return _short(repr(value) if isinstance(value, Result) else str(value))


def _said_array(value: Any) -> str:
    if value.ndim == 0:
        return said(value.item())
    if value.size <= FEW and value.ndim == 1:
        return _said_some([said(item) for item in value.tolist()])
    shape = " x ".join(map(str, value.shape))
    if not value.size:
        return f"{shape}, empty"
    if value.dtype.kind == "b":
        return f"{shape}, {int(value.sum())} of them yes"
    return f"{shape} numbers from {said(value.min().item())} to {said(value.max().item())}"


def _said_some(texts: Iterable[str]) -> str:
    texts = list(texts)
    most = [*texts[:FEW], f"and {len(texts) - FEW} more"] if len(texts) > FEW else texts
    return _short((", " if sum(map(len, most)) <= LONG else "\n").join(most) or "none", LONG * FEW)


def _short(text: str, most: int = LONG) -> str:
    return text if len(text) <= most else text[: most - 3] + "..."


def _html(title: str, head: list[str], rows: list[list[str]]) -> str:
    """One table: a caption, headers with their scope, everything escaped."""
    top = "".join(f'<th scope="col">{escape(name)}</th>' for name in head)
    top = f"<thead><tr>{top}</tr></thead>" if head else ""
    lines = [
        "".join(
            f'<th scope="row">{escape(text)}</th>' if not head and i == 0 else f"<td>{escape(text)}</td>"
            for i, text in enumerate(row)
        )
        for row in rows
    ]
    body = "".join(f"<tr>{line}</tr>" for line in lines)
    return f"<table><caption>{escape(title)}</caption>{top}<tbody>{body}</tbody></table>"
