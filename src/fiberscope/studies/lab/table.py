"""Tables: what studies return and pictures and pages are made from."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any

from fiberscope.errors import InputError
from fiberscope.results import Tabular, named
from fiberscope.training.records import number, plain

Cell = int | float | str | bool | None
Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Table(Tabular):
    """Rows of plain cells under named columns, in a fixed order.

    >>> table = Table.of([{"width": 5, "regions": 3}, {"width": 5, "regions": 5}, {"width": 9, "regions": 8}])
    >>> table.column("regions")
    [3, 5, 8]
    >>> table.where(width=5).mean("regions")
    4.0
    >>> print(table.csv(), end="")
    width,regions
    5,3
    5,5
    9,8
    """

    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...] = field(metadata=named(told=plain))

    frame = "dicts"

    @classmethod
    def of(cls, rows: Sequence[Row]) -> Table:
        """A table from mappings; columns in order of first appearance, None where a row has no entry."""
        columns = tuple(dict.fromkeys(name for row in rows for name in row))
        cells = tuple(tuple(_cell(row.get(name), name) for name in columns) for row in rows)
        return cls(columns, cells)

    def __len__(self) -> int:
        return len(self.rows)

    def _index(self, name: str) -> int:
        if name not in self.columns:
            raise InputError(f"column: expected one of {', '.join(self.columns) or 'none'}, got {name!r}")
        return self.columns.index(name)

    def column(self, name: str) -> list[Any]:
        """The entries of one column."""
        index = self._index(name)
        return [row[index] for row in self.rows]

    def where(self, **equal: Any) -> Table:
        """The rows with these entries."""
        wanted = [(self._index(name), value) for name, value in equal.items()]
        return Table(self.columns, tuple(row for row in self.rows if all(row[i] == v for i, v in wanted)))

    def groups(self, *names: str) -> dict[tuple[Any, ...], Table]:
        """The rows by the entries of some columns, in order of first appearance."""
        indices = [self._index(name) for name in names]
        found: dict[tuple[Any, ...], list[tuple[Cell, ...]]] = {}
        for row in self.rows:
            found.setdefault(tuple(row[i] for i in indices), []).append(row)
        return {key: Table(self.columns, tuple(rows)) for key, rows in found.items()}

    def mean(self, name: str) -> float:
        """Mean of a column of numbers, entries None left out."""
        values = [float(value) for value in self.column(name) if value is not None]
        if not values:
            raise InputError(f"column {name}: expected at least one number, got none")
        return fmean(values)

    def dicts(self) -> list[dict[str, Any]]:
        """The rows as mappings."""
        return [dict(zip(self.columns, row, strict=True)) for row in self.rows]

    def csv(self) -> str:
        """Text for spreadsheets: floats with all their digits, an empty cell for None."""
        buffer = io.StringIO()
        writer = csv.writer(buffer, lineterminator="\n")
        writer.writerow(self.columns)
        writer.writerows([_text(cell) for cell in row] for row in self.rows)
        return buffer.getvalue()

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Table:
        """Inverse of :meth:`to_dict`."""
        return cls(tuple(data["columns"]), tuple(tuple(number(cell) for cell in row) for row in data["rows"]))


def _cell(value: Any, name: str) -> Cell:
    cell = number(plain(value))
    if isinstance(cell, list | dict):
        raise InputError(f"column {name}: expected a number, a text or None, got {type(value).__name__}")
    return cell  # type: ignore[no-any-return]


def _text(cell: Cell) -> str:
    if cell is None:
        return ""
    return cell if isinstance(cell, str) else json.dumps(cell) if isinstance(cell, bool) else repr(cell)
