"""Which entries of a layer are fixed: as many for every channel, by what the layer really computes, and none unsaid."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from fiberscope.errors import InputError
from fiberscope.modules.parametrisations import fixed_parts
from fiberscope.neurons.asymmetric_models import w_vit
from fiberscope.neurons.asymmetry import break_symmetry

NAMES = ("query", "key", "value", "out")

KINDS = {
    (1, False): nn.Conv1d,
    (2, False): nn.Conv2d,
    (3, False): nn.Conv3d,
    (1, True): nn.ConvTranspose1d,
    (2, True): nn.ConvTranspose2d,
    (3, True): nn.ConvTranspose3d,
}


@st.composite
def convolutions(draw: st.DrawFn) -> Any:
    axes, transposed = draw(st.integers(1, 3)), draw(st.booleans())
    groups = draw(st.sampled_from([1, 2, 3]))
    inputs, outputs = (groups * draw(st.integers(1, 3)) for _ in range(2))
    return KINDS[axes, transposed](inputs, outputs, 3, padding=1, groups=groups, bias=False), axes


def readers(layer: Any, axes: int, channel: int, by_input: bool) -> Tensor:
    """The entries of the weight that meet one channel, found by derivatives: no formula about groups."""
    channels = layer.in_channels
    x = torch.zeros(1, channels, *[4] * axes) if by_input else torch.ones(1, channels, *[4] * axes)
    if by_input:
        x[:, channel] = 1.0
    plain = type(layer)(channels, layer.out_channels, 3, padding=1, groups=layer.groups, bias=False)
    nn.init.ones_(plain.weight)
    y = plain(x) if by_input else plain(x)[:, channel]
    y.sum().backward()
    return plain.weight.grad != 0


@given(convolutions(), st.booleans(), st.integers(0, 3), st.integers(0, 5), st.sampled_from(["w", "sparse"]))
def test_every_channel_has_its_number_of_fixed_entries(
    case: Any, by_input: bool, count: int, seed: int, scheme: str
) -> None:
    layer, axes = case
    broken = break_symmetry(layer, scheme, seed, fixed=count, per="input" if by_input else "output")
    fixed = broken.parametrizations.weight[0].D == 0
    covered = torch.zeros_like(fixed, dtype=torch.int64)
    for channel in range(layer.in_channels if by_input else layer.out_channels):
        own = readers(layer, axes, channel, by_input)
        covered += own
        assert int((fixed & own).sum()) == count
    assert (covered == 1).all()  # every entry belongs to one channel


def test_a_grouped_convolution_spreads_its_fixed_entries() -> None:
    net = break_symmetry(nn.Conv2d(4, 4, 3, groups=4), "w", 0, fixed=2)
    assert (net.parametrizations.weight[0].D == 0).sum(dim=(1, 2, 3)).tolist() == [2, 2, 2, 2]
    with pytest.raises(InputError, match="expected 0 to 9 fixed entries per input channel, got 10"):
        break_symmetry(nn.Conv2d(4, 4, 3, groups=4), "w", 0, fixed=10)


@given(convolutions())
def test_the_identity_copies_channels(case: Any) -> None:
    layer, axes = case
    nn.init.zeros_(layer.weight)
    net = break_symmetry(layer, "residual", sigma=1.0)
    x = torch.randn(2, layer.in_channels, *[4] * axes)
    y = net(x)
    groups, inputs, outputs = layer.groups, layer.in_channels, layer.out_channels
    for o in range(outputs):
        same = o < inputs and o // (outputs // groups) == o // (inputs // groups)
        assert torch.equal(y[:, o], x[:, o] if same else torch.zeros_like(y[:, o]))


def test_bilinear_layers() -> None:
    layer = nn.Bilinear(3, 4, 5)
    net = break_symmetry(layer, "w", 1, fixed=6)
    assert (net.parametrizations.weight[0].D == 0).sum(dim=(1, 2)).tolist() == [6] * 5
    both = break_symmetry(nn.Sequential(nn.ConvTranspose2d(1, 1, 2), nn.Bilinear(1, 1, 1)), "w", 1)
    assert [name for name, _ in fixed_parts(both)] == ["0.weight", "1.weight"]
    with pytest.raises(InputError, match="layer Bilinear: a bilinear map has no identity"):
        break_symmetry(layer, "residual")
    assert break_symmetry(layer, "syre")(torch.ones(1, 3), torch.ones(1, 4)).shape == (1, 5)


def test_gates_behind_transposed_convolutions() -> None:
    net = nn.Sequential(nn.ConvTranspose2d(1, 3, 2), nn.ReLU(), nn.ConvTranspose2d(3, 2, 2), nn.ReLU())
    assert break_symmetry(net, "sigma")(torch.ones(1, 1, 4, 4)).shape == (1, 2, 6, 6)


class Other(nn.Module):
    """A layer of somebody else, with a matrix of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(2, 2))


def test_what_is_left_out_is_named() -> None:
    parts = nn.ModuleDict(
        {"embed": nn.Embedding(3, 4), "rnn": nn.LSTM(4, 4), "fc": nn.Linear(4, 4), "own": Other(), "n": nn.LayerNorm(4)}
    )
    with pytest.warns(UserWarning, match=r"embed \(Embedding\), rnn \(LSTM\), own \(Other\); exclude= them"):
        break_symmetry(parts)
    with pytest.warns(UserWarning, match=r"as they are: rnn \(LSTM\);"):
        break_symmetry(parts, exclude=["embed", "own"])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        break_symmetry(parts, include="fc")
        break_symmetry(nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2), nn.PReLU()))
        break_symmetry(nn.MultiheadAttention(8, 2, kdim=4))


def test_coupled_masks_of_a_transformer() -> None:
    """Queries and keys, values and the columns that read them, are fixed in the same places; as many as by entries."""
    plain, both = (w_vit(16, 1, 2, image=8, fixed=3, masks=masks) for masks in ("entries", "coupled"))
    x = torch.randn(2, 3, 8, 8)
    parts = [
        {name: net.get_submodule(f"blocks.0.attention.{name}").parametrizations.weight[0] for name in NAMES}
        for net in (plain, both)
    ]
    fixed = {name: part.D == 0 for name, part in parts[1].items()}
    assert torch.equal(fixed["query"], fixed["key"]) and torch.equal(fixed["value"], fixed["out"].T)
    assert not torch.equal(parts[0]["query"].D, parts[0]["key"].D)
    for name in NAMES:
        assert torch.equal(parts[0][name].F[parts[0][name].D == 0], parts[1][name].F[fixed[name]])
        assert not parts[1][name].F[~fixed[name]].any()
    assert plain(x).shape == both(x).shape
    with pytest.raises(InputError, match="masks: expected one of entries, coupled"):
        w_vit(16, 1, 2, image=8, masks="heads")
