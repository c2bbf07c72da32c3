"""Laws of answers, for one of every kind (``answers.py``): plain data, tables, frames, pictures, nothing stale."""

from __future__ import annotations

import dataclasses
import enum
import importlib
import inspect
import io
import json
import pkgutil
import sys
from collections.abc import Iterator
from fractions import Fraction
from functools import cache, cached_property
from html.parser import HTMLParser
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pytest
from rich.console import Console

import fiberscope as fs
from fiberscope import results
from fiberscope.equality.evidence import Evidence
from fiberscope.geometry.cells import Cells
from fiberscope.results import Pictured, Result, Tabular, hidden, named, plain, said
from fiberscope.training import records

from . import answers

NAMES = sorted(answers.ANSWERS)
HOSTILE = "<script>[red]x</script>"


@pytest.fixture(scope="module", params=NAMES)
def answer(request: pytest.FixtureRequest) -> Any:
    return made(request.param)


@cache
def made(name: str) -> Any:
    return answers.ANSWERS[name]()


def kinds(base: type = Result) -> Iterator[type]:
    """All classes of answers that the package defines; a dataclass with slots leaves its first draft behind."""
    for kind in base.__subclasses__():
        if kind.__module__.startswith("fiberscope.") and dataclasses.is_dataclass(kind):
            yield kind
        yield from kinds(kind)


@pytest.fixture(scope="module")
def package() -> list[ModuleType]:
    """Every module, so that every class is defined."""
    found = pkgutil.walk_packages(fs.__path__, "fiberscope.")
    skip = {"fiberscope.__main__"}
    return [importlib.import_module(module.name) for module in found if module.name not in skip]


def text_of(shown: Any, width: int = 100) -> str:
    console = Console(width=width, file=io.StringIO())
    with console.capture() as found:
        console.print(shown)
    return found.get()


# --- laws ---------------------------------------------------------------------------------------------------------


def test_every_kind_of_answer_is_in_the_table(package: list[ModuleType]) -> None:
    types = {type(made(name)) for name in NAMES}
    # a new method of equality tests its evidence beside its search, see tests/equality/evidence_laws.py
    needed = {str(kind) for kind in kinds() if not issubclass(kind, Evidence)}
    assert needed <= {str(kind) for kind in types} <= {str(kind) for kind in kinds()}
    assert all(name.split(" of ")[0] == type(made(name)).__name__ for name in NAMES)


def test_an_answer_is_plain_data(answer: Any) -> None:
    data = answer.to_dict()
    assert json.loads(json.dumps(data, allow_nan=False)) == data
    assert data or not dataclasses.fields(answer)


def test_an_answer_is_frozen(answer: Any) -> None:
    for item in dataclasses.fields(answer):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(answer, item.name, None)
    assert type(answer).__dataclass_params__.frozen


def test_an_answer_is_a_table_in_a_terminal(answer: Any) -> None:
    text = text_of(answer)
    assert type(answer).__name__ in text
    if not isinstance(answer, Tabular):
        assert all(name in text for name, _ in answer._answer())


class Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.text: list[str] = []
        self.scopes: list[str | None] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.open.append(tag)
        if tag == "th":
            self.scopes.append(dict(attrs).get("scope"))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def test_an_answer_is_a_table_in_a_notebook(answer: Any) -> None:
    html = answer._repr_html_()
    tags = Tags()
    tags.feed(html)
    assert not tags.open and "<caption>" in html
    assert set(tags.scopes) <= {"row", "col"} and (tags.scopes or not answer.to_dict())


def test_a_copy_is_the_same_answer(answer: Any) -> None:
    fields = {item.name for item in dataclasses.fields(answer) if item.init}
    if fields == set(inspect.signature(type(answer)).parameters):  # others are not made from their fields
        assert dataclasses.replace(answer).to_dict() == answer.to_dict()


def test_a_frame_has_columns_of_one_length(monkeypatch: pytest.MonkeyPatch) -> None:
    tables = [answer for answer in map(made, NAMES) if isinstance(answer, Tabular)]
    assert len(tables) >= 20
    monkeypatch.setitem(sys.modules, "pandas", SimpleNamespace(DataFrame=lambda columns: columns))
    for answer in tables:
        columns = answer.to_frame()
        assert columns and len({len(column) for column in columns.values()}) == 1, type(answer)


def test_frames_are_those_of_pandas() -> None:
    pandas = pytest.importorskip("pandas", reason="pandas is a development tool: pip install fiberscope[dev]")
    for answer in map(made, NAMES):
        if isinstance(answer, Tabular):
            frame, columns = answer.to_frame(), answer._columns()
            assert isinstance(frame, pandas.DataFrame)
            assert list(frame.columns) == list(columns)
            assert all(len(frame) == len(column) for column in columns.values())
    near = fs.boundary_distance(answers.NET, answers.X)
    frame = near.to_frame()
    assert frame["distance"].dtype == np.float64 and np.array_equal(frame["distance"], near.distance)
    assert frame["visible"].dtype == bool and frame["neuron"].dtype.kind == "i"
    assert np.array_equal(frame.filter(regex=r"^point_").to_numpy(), near.point)


def test_a_picture_exists_and_takes_the_answer() -> None:
    pictures = [answer for answer in map(made, NAMES) if isinstance(answer, Pictured)]
    assert {answer.picture for answer in pictures} <= set(fs.plot.__all__) and len(pictures) >= 10
    for answer in pictures:
        further = (answers.X,) if answer.picture == "boundary_distance" else ()
        assert answer.plot(*further).figure is not None
        plt.close("all")


def test_no_public_answer_is_without_the_base(package: list[ModuleType]) -> None:
    """What has ``to_dict`` is an answer; it has all the rest as well."""
    found = {
        value
        for module in package
        for value in vars(module).values()
        if isinstance(value, type) and dataclasses.is_dataclass(value) and hasattr(value, "to_dict")
    }
    assert len(found) > 70
    assert all(issubclass(kind, Result) for kind in found)


# --- nothing stale ------------------------------------------------------------------------------------------------


def frozen_kinds(package: list[ModuleType]) -> set[type]:
    return {
        value
        for module in package
        for value in vars(module).values()
        if dataclasses.is_dataclass(value) and isinstance(value, type) and value.__dataclass_params__.frozen
    }


def test_replace_keeps_no_cache(package: list[ModuleType]) -> None:
    """A private field of a frozen dataclass is a cache; one that ``replace`` hands on would be stale."""
    found = frozen_kinds(package)
    assert Cells in found
    held = [(kind, item) for kind in found for item in dataclasses.fields(kind) if item.name.startswith("_")]
    assert held and not [(kind, item.name) for kind, item in held if item.init]


def test_cells_with_other_signs_have_these_signs() -> None:
    cells = answers.complex_().structure
    before = cells.signs(2)
    assert before.any()
    changed = dataclasses.replace(cells, vertex_signs=np.zeros_like(cells.vertex_signs))
    assert not changed.signs(2).any() and not changed.top_signs.any()
    assert np.array_equal(cells.signs(2), before)


# --- the base itself ----------------------------------------------------------------------------------------------


class Colour(enum.Enum):
    RED = "red"


@dataclasses.dataclass(frozen=True, slots=True)
class Part(Result):
    value: float


@dataclasses.dataclass(frozen=True, slots=True)
class Whole(Tabular):
    parts: tuple[Part, ...]
    net: Any
    text: str
    values: Any = dataclasses.field(metadata=named("numbers", list))
    secret: int = dataclasses.field(default=3, metadata=hidden())

    told = ("count", "widths=net.widths", "doubled")
    frame = "parts"

    @property
    def count(self) -> int:
        return len(self.parts)

    def doubled(self) -> list[float]:
        return [2 * part.value for part in self.parts]


def whole(text: str = HOSTILE) -> Whole:
    return Whole((Part(0.5), Part(np.inf)), answers.NET, text, {"b": 1, "a": 2})


def test_fields_are_hidden_renamed_and_joined_by_what_is_computed() -> None:
    assert whole().to_dict() == {
        "parts": [{"value": 0.5}, {"value": None}],
        "net": repr(answers.NET),
        "text": HOSTILE,
        "numbers": ["b", "a"],
        "count": 2,
        "widths": [2, 4, 3, 2],
        "doubled": [1.0, None],
    }


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (np.float32(0.5), 0.5),
        (np.int8(3), 3),
        (np.bool_(True), True),
        (True, True),
        (np.array([[1.0, np.nan]]), [[1.0, None]]),
        (np.array([], dtype=int), []),
        (-np.inf, None),
        (Fraction(1, 3), "1/3"),
        (Path("a") / "b", "a/b"),
        (Colour.RED, "red"),
        ({1: (2, 3)}, {"1": [2, 3]}),
        (frozenset({3, 1}), [1, 3]),
        (10**30, 10**30),
        (fs.Box([0.0], [1.0]), repr(fs.Box([0.0], [1.0]))),
    ],
)
def test_plain(value: Any, expected: Any) -> None:
    found = plain(value)
    assert found == expected and type(found) is type(expected)


def test_records_keep_what_json_has_no_number_for() -> None:
    """Files that are read again need the words; see ``records.number``."""
    assert records.plain(whole()) == whole().to_dict() | {
        "parts": [{"value": 0.5}, {"value": "inf"}],
        "doubled": [1.0, "inf"],
    }


def test_text_is_escaped_in_html_and_not_read_as_markup_in_a_terminal() -> None:
    html = whole()._repr_html_()
    assert "<script>" not in html and "&lt;script&gt;" in html
    assert HOSTILE in text_of(whole())
    two = Tags()
    two.feed(html)
    assert HOSTILE in two.text and not two.open


def test_long_tables_are_cut_for_people_only() -> None:
    many = dataclasses.replace(whole(), parts=tuple(Part(float(i)) for i in range(50)))
    assert f"the first {results.ROWS}" in text_of(many) and "49" not in many._repr_html_().split("<thead>")[1]
    assert len(many.to_dict()["parts"]) == 50


def test_said_in_a_few_words() -> None:
    assert said(np.zeros((0, 3))) == "0 x 3, empty"
    assert said(np.array([[True, False]] * 9)) == "9 x 2, 9 of them yes"
    assert said({"a": 1.5, "b": None}) == "a: 1.5, b: -"
    assert said(list(range(20))).endswith("and 12 more")
    assert len(said("x" * 1000)) == results.LONG
    assert said(()) == "none"


def test_without_pandas_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(fs.InputError, match="pip install pandas"):
        whole().to_frame()


def test_columns_of_vectors_become_several() -> None:
    found = fs.boundary_distance(answers.NET, answers.X)
    columns = found._columns()
    assert np.array_equal(columns["point_1"], found.point[:, 1]) and "point" not in columns


def cached(kind: type) -> set[str]:
    """The names of what a class computes once."""
    return {name for base in kind.__mro__ for name, value in vars(base).items() if isinstance(value, cached_property)}


def remembers(thing: Any) -> dict[str, Any]:
    """What an object keeps besides what it was made of: cached values, and fields that are filled on the way."""
    own = getattr(thing, "__dict__", {})
    filled = [field.name for field in dataclasses.fields(thing) if not field.init]
    return {name: own[name] for name in cached(type(thing)) & own.keys()} | {n: getattr(thing, n) for n in filled}


def test_what_is_replaced_remembers_nothing(answer: Any) -> None:
    before = remembers(dataclasses.replace(answer))
    for name in cached(type(answer)):
        getattr(answer, name)
    after = dataclasses.replace(answer)
    assert remembers(after).keys() == before.keys()
    for name, value in remembers(after).items():
        assert not isinstance(value, dict | list | set) or value is not remembers(answer)[name], name


def test_cells_with_other_signs_have_other_signs() -> None:
    cells = answers.complex_().structure
    signs = [cells.signs(k) for k in range(3)]
    turned = dataclasses.replace(cells, vertex_signs=-cells.vertex_signs)
    for k, old in enumerate(signs):
        assert np.array_equal(turned.signs(k), -old)
