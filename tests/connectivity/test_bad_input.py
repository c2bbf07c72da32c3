"""What cannot be answered about live models: one line each, that names what was expected."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import fiberscope as fs
from fiberscope.errors import FiberscopeError


def net(*widths: int) -> nn.Sequential:
    layers: list[nn.Module] = []
    for before, after in pairwise(widths):
        layers += [nn.Linear(before, after), nn.BatchNorm1d(after), nn.ReLU()]
    return nn.Sequential(*layers[:-2]).eval()


class Raising(nn.Module):
    def __init__(self, error: Exception) -> None:
        super().__init__()
        self.linear, self.error = nn.Linear(3, 2), error

    def forward(self, x: Tensor) -> Tensor:
        raise self.error


A, B, DEEP = net(3, 4, 2), net(3, 4, 2), net(3, 4, 4, 2)
X, Y, WIDE = torch.randn(8, 3), torch.arange(8) % 2, torch.randn(8, 5)
OTHER = r"layer 3\.weight: expected equal shapes, got \(2, 4\) and \(4, 4\)"
SHAPE = "it does not run on the (data|example): mat1 and mat2 shapes cannot be multiplied"


def broken(place: str = "0.weight") -> nn.Module:
    bad = net(3, 4, 2)
    with torch.no_grad():
        bad.get_parameter(place).view(-1)[0] = torch.nan
    return bad


ARCHITECTURES: dict[str, Callable[[], Any]] = {
    "match": lambda: fs.match(A, DEEP, method="weights", data=X),
    "match_many": lambda: fs.match_many([A, B, DEEP], data=X),
    "barrier": lambda: fs.barrier(A, DEEP, "cross_entropy", (X, Y)),
    "merge": lambda: fs.merge([A, DEEP], data=X),
    "interpolate": lambda: fs.interpolate(A, DEEP, 0.5),
}
SHAPES: dict[str, Callable[[], Any]] = {
    **{
        name: lambda name=name: fs.match(A, B, method=name, data=(WIDE, Y))
        for name in ("weights", "activations", "ste")
    },
    "barrier": lambda: fs.barrier(A, B, "cross_entropy", (WIDE, Y)),
    "repair": lambda: fs.repair(A, WIDE),
    "repair of activations": lambda: fs.repair(A, WIDE, (A, B)),
}
NUMBERS: dict[str, Callable[[], Any]] = {
    **{
        f"{name}, {place}": lambda name=name, place=place: fs.match(A, broken(place), method=name, data=(X, Y))
        for name in ("weights", "activations", "ste", "learned")
        for place in ("0.weight", "3.bias")  # the second is read by nobody and cannot move
    },
    "match_many": lambda: fs.match_many([A, B, broken()], data=X),
    "merge": lambda: fs.merge([A, broken()], data=X),
    "merge without alignment": lambda: fs.merge([A, broken("3.bias")], align=None),
    "repair": lambda: fs.repair(A, X, (A, broken())),
    "repair of a broken one": lambda: fs.repair(broken(), X),
}


class Own(Exception):
    """A kind of error that nobody else knows."""


def raising(error: Exception) -> Callable[..., Any]:
    def function(*arguments: Any) -> Any:
        raise error

    return function


def failing(error: Exception) -> Iterator[Any]:
    yield X, Y
    raise error


ERRORS = [RuntimeError("boom\nsecond line"), KeyError("k"), ZeroDivisionError(), AttributeError("no"), Own("mine")]
CODE: dict[str, tuple[str, Callable[[Callable[..., Any]], Any]]] = {
    "loss of barrier": ("loss: it raises", lambda f: fs.barrier(A, B, f, (X, Y))),
    "loss of barrier, stacked": ("loss: it raises", lambda f: fs.barrier(A, B, f, (X, Y), engine="vmap")),
    "loss of ste": ("loss: it raises", lambda f: fs.match(A, B, method="ste", data=(X, Y), loss=f)),
    "loss of learned": ("loss: it raises", lambda f: fs.match(A, B, method="learned", data=(X, Y), loss=f)),
    "output": ("output: the function raises", lambda f: fs.barrier(A, B, "cross_entropy", (X, Y), output=f)),
    "output of a structure": ("output: the function raises", lambda f: fs.permutation_structure(A, X, output=f)),
}


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        *((ask, OTHER) for ask in ARCHITECTURES.values()),
        *((ask, SHAPE) for ask in SHAPES.values()),
        *((ask, r"\w+(\[\d\])?: expected finite weights, got NaN or infinity in \d\.\w+") for ask in NUMBERS.values()),
    ],
    ids=[
        *(f"architectures: {k}" for k in ARCHITECTURES),
        *(f"shape: {k}" for k in SHAPES),
        *(f"NaN: {k}" for k in NUMBERS),
    ],
)
def test_one_line(ask: Callable[[], Any], message: str) -> None:
    with pytest.raises(FiberscopeError, match=message) as caught:
        ask()
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_models_that_raise(error: Exception) -> None:
    bad = Raising(error)
    for ask in (
        lambda: fs.permutation_structure(bad, X),
        lambda: fs.match(bad, bad, data=X),
        lambda: fs.barrier(bad, bad, "cross_entropy", (X, Y)),
    ):
        check_line(ask, "module: it does not run on the (example|data): ", error)


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("where", CODE)
def test_functions_that_raise(where: str, error: Exception) -> None:
    message, ask = CODE[where]
    check_line(lambda: ask(raising(error)), message, error)


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_data_that_raise(error: Exception) -> None:
    check_line(lambda: fs.barrier(A, B, "cross_entropy", failing(error)), "data: reading it fails: ", error)


def check_line(ask: Callable[[], Any], message: str, error: Exception) -> None:
    """One line, with what was raised behind it."""
    with pytest.raises(FiberscopeError, match=message) as caught:
        ask()
    assert "\n" not in str(caught.value) and type(caught.value.__cause__) is type(error)


def test_the_first_tensor_that_differs_is_named_in_the_order_of_the_models() -> None:
    deep = [nn.Sequential(*(nn.Linear(2, 2) for _ in range(12))) for _ in range(2)]
    deep[1][2], deep[1][10] = nn.Linear(2, 2, bias=False), nn.Linear(2, 3)
    with pytest.raises(FiberscopeError, match=r"layer 2\.bias: expected two models of one architecture, the second"):
        fs.interpolate(*deep, 0.5)


def test_interruptions_pass() -> None:
    with pytest.raises(KeyboardInterrupt):
        fs.barrier(A, B, raising(KeyboardInterrupt()), (X, Y))  # type: ignore[arg-type]


def test_the_structure_of_a_broken_model_is_that_of_its_architecture() -> None:
    assert fs.permutation_structure(broken("3.bias"), X).groups == fs.permutation_structure(A, X).groups
