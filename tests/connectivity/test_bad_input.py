"""What cannot be answered about live models: one line each, that names what was expected."""

from __future__ import annotations

from collections.abc import Callable
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
OTHER = r"layer [34]\.\w+: expected two models of one architecture, the first has"
SHAPE = "it does not run on the (data|example): mat1 and mat2 shapes cannot be multiplied"


def broken() -> nn.Module:
    bad = net(3, 4, 2)
    with torch.no_grad():
        bad[0].weight[0, 0] = torch.nan
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
    **{name: lambda name=name: fs.match(A, broken(), method=name, data=(X, Y)) for name in ("weights", "activations")},
    "merge": lambda: fs.merge([A, broken()], data=X),
}


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        *((ask, OTHER) for ask in ARCHITECTURES.values()),
        *((ask, SHAPE) for ask in SHAPES.values()),
        *((ask, r"b: expected finite weights, got NaN or infinity in 0\.weight") for ask in NUMBERS.values()),
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


@pytest.mark.parametrize(
    "error", [RuntimeError("boom\nsecond line"), KeyError("k"), ZeroDivisionError(), AttributeError("no")]
)
def test_models_that_raise(error: Exception) -> None:
    bad = Raising(error)
    for ask in (
        lambda: fs.permutation_structure(bad, X),
        lambda: fs.match(bad, bad, data=X),
        lambda: fs.barrier(bad, bad, "cross_entropy", (X, Y)),
    ):
        with pytest.raises(FiberscopeError, match="it does not run on the") as caught:
            ask()
        assert "\n" not in str(caught.value)
