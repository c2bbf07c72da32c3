"""Equality by channels: permuted, rescaled, split, pruned and dead ones, through pools, sums and concatenations."""

from __future__ import annotations

import copy
import itertools
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.equality.evidence_laws import check_evidence
from torch import nn
from torch.nn.utils.fusion import fuse_conv_bn_eval

import fiberscope as fs
from fiberscope.connectivity.structure import permutation_structure
from fiberscope.equality.question import Question
from fiberscope.equality.rounding import deviation
from fiberscope.equality.rungs.channels import ChannelsAgree, _prepared, by_channels
from fiberscope.equality.skeletons.numbering import Claim, Numbering
from fiberscope.network.network import Network
from fiberscope.network.nodes import Affine, Concat, MaxPool, PiecewiseLinear
from fiberscope.network.operators import Dense
from fiberscope.numerics.ulps import ROUNDINGS
from fiberscope.testing import fraction_values
from fiberscope.testing.hostile import TAME, programs

SHAPE = (2, 8, 8)


def stirred(module: nn.Module, seed: int = 0) -> nn.Module:
    source = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for part in module.modules():
            if isinstance(part, nn.BatchNorm2d):
                for tensor, low in ((part.running_var, 0.5), (part.weight, 0.5), (part.running_mean, -0.5)):
                    tensor.copy_(torch.rand(tensor.shape, generator=source) + low)
                part.bias.copy_(torch.rand(part.bias.shape, generator=source) - 0.5)
    return module.eval()


class Residual(nn.Module):
    """Batch normalisation, a pool with padding, a sum, groups, a concatenation, a mean."""

    def __init__(self) -> None:
        super().__init__()
        self.enter, self.first = nn.Conv2d(2, 6, 3, padding=1), nn.BatchNorm2d(6)
        self.one, self.two = nn.Conv2d(6, 6, 3, padding=1, bias=False), nn.Conv2d(6, 6, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(6)
        self.wide, self.out = nn.Conv2d(6, 4, 1, groups=2), nn.Linear(10, 3)

    def forward(self, x):
        x = nn.functional.max_pool2d(torch.relu(self.first(self.enter(x))), 3, 2, 1)
        y = torch.relu(self.norm(self.two(torch.relu(self.one(x)))) + x)
        z = nn.functional.leaky_relu(self.wide(y), 0.1)
        return self.out(torch.cat([y, z], dim=1).mean(dim=(2, 3)))


def chain() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(2, 5, 3, padding=1), nn.BatchNorm2d(5), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(5, 7, 3, bias=False),
        nn.BatchNorm2d(7), nn.ReLU(), nn.Flatten(), nn.Linear(28, 9), nn.ReLU(), nn.Dropout(), nn.Linear(9, 3),
    )  # fmt: skip


def folded(module: nn.Module) -> nn.Module:
    made = copy.deepcopy(module)
    for part in made.modules():
        names = list(part.named_children())
        pairs = [*itertools.pairwise(names)]
        if isinstance(part, Residual):
            pairs = [(("enter", part.enter), ("first", part.first)), (("two", part.two), ("norm", part.norm))]
        for (one, conv), (two, norm) in pairs:
            if isinstance(conv, nn.Conv2d) and isinstance(norm, nn.BatchNorm2d):
                setattr(part, one, fuse_conv_bn_eval(conv, norm))
                setattr(part, two, nn.Identity())
    return made.eval()


MODELS = {"chain": chain, "residual": Residual}


def model(name: str) -> nn.Module:
    torch.manual_seed(1)
    return stirred(MODELS[name]())


def loaded(*modules: nn.Module) -> list[Network]:
    return [fs.load(m, SHAPE) for m in modules]


def asked(a: Network, b: Network, domain=None, tolerance=None):
    """What the method itself says, evidence checked where it says something."""
    question = Question.of(a, b, domain, tolerance, 600)
    verdict = by_channels(question)
    if verdict is not None:
        assert verdict.equal is True
        check_evidence(verdict.evidence, question)
    return verdict


def near(a: Network, b: Network, bound: float, seed: int = 0) -> bool:
    x = np.random.default_rng(seed).uniform(-1, 1, (300, a.in_size))
    return bool(np.abs(a(x) - b(x)).max() <= bound)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("kind", ["permutation", "both", "folded"])
def test_channels_in_another_order_and_size(name, kind):
    module = model(name)
    structure = permutation_structure(module, torch.zeros(1, *SHAPE))
    structure = structure.only("permutation") if kind == "permutation" else structure
    moved = structure.apply(module, structure.random(3))
    a, b = loaded(module, folded(moved) if kind == "folded" else moved)
    verdict = asked(a, b)
    assert verdict is not None and verdict.residual <= 8
    box = fs.Box.cube(a.in_size)
    bounded = asked(a, b, box)
    assert bounded.bound is not None and near(a, b, bounded.bound)
    assert asked(a, b, box, bounded.bound) is not None
    assert fs.equivalent(a, b).equal is True


@pytest.mark.parametrize("name", MODELS)
def test_powers_of_two_round_nothing(name):
    module = folded(model(name))
    structure = permutation_structure(module, torch.zeros(1, *SHAPE))
    a, b = loaded(module, structure.apply(module, structure.random(5)))
    if name == "chain":
        assert asked(a, b, tolerance=0).exact
    nodes = list(b.nodes)
    at = next(k for k, node in enumerate(nodes) if isinstance(node, Affine))
    kernel = nodes[at].operator.coefficients.copy()
    kernel.flat[0] = np.nextafter(kernel.flat[0], 9)
    nodes[at] = replace(nodes[at], operator=nodes[at].operator.with_coefficients(kernel))
    off = Network.from_nodes(nodes, b.input_shape, b.source)
    assert asked(a, off, tolerance=0) is None
    assert asked(a, off) is not None


def changed(module: nn.Module, how: str) -> nn.Module:
    """A copy that is another function, though its parameters look alike."""
    made = copy.deepcopy(module)
    with torch.no_grad():
        match how:
            case "transposed kernel":
                made[0].weight.copy_(made[0].weight.transpose(2, 3).clone())
            case "swapped without the reader":
                made[0].weight.copy_(made[0].weight[[1, 0, 2, 3, 4]].clone())
                made[0].bias.copy_(made[0].bias[[1, 0, 2, 3, 4]].clone())
            case "stride":
                made[3] = nn.MaxPool2d(2, 2, ceil_mode=False, padding=1)
                made[3] = nn.Sequential(nn.ZeroPad2d((1, -1, 1, -1)), nn.MaxPool2d(2))
            case "padding":
                made[0].padding = (2, 2)
                made[0] = nn.Sequential(made[0], nn.ZeroPad2d(-1))
                made[0][0].weight.copy_(made[0][0].weight.flip(3))
            case "eps":
                made[1].eps = 1e-3
            case "negative factor":
                made[0].weight[0] *= -1
                made[0].bias[0] *= -1
                made[1].running_mean[0] *= -1
                made[1].bias[0] *= -1
                made[4].weight[:, 0] *= -1
            case "sign of one weight":
                made[8].weight[2, 3] *= -1
            case "mean pool":
                made[3] = nn.AvgPool2d(2)
            case "slope":
                made[2] = nn.LeakyReLU(1e-3)
    return made.eval()


@pytest.mark.parametrize("move", [False, True])
@pytest.mark.parametrize(
    "how",
    [
        "transposed kernel", "swapped without the reader", "stride", "padding", "eps", "negative factor",
        "sign of one weight", "mean pool", "slope",
    ],
)  # fmt: skip
def test_other_functions_are_not_taken_for_the_same(how, move):
    module = model("chain")
    other = changed(module, how)
    if move:
        structure = permutation_structure(other, torch.zeros(1, *SHAPE))
        other = structure.apply(other, structure.random(2))
    a, b = loaded(module, other)
    assert not near(a, b, 1e-6)
    assert asked(a, b) is None and asked(a, b, tolerance=0) is None
    far = asked(a, b, fs.Box.cube(a.in_size), 1e-6)
    assert far is None


def test_pools_and_activations_change_places():
    torch.manual_seed(0)
    conv, last = nn.Conv2d(2, 4, 3), nn.Linear(36, 3)
    one = nn.Sequential(conv, nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), last)
    two = nn.Sequential(conv, nn.MaxPool2d(2), nn.ReLU(), nn.ReLU(), nn.Flatten(), last)
    assert asked(*loaded(one, two), tolerance=0).exact
    low = nn.Sequential(conv, nn.LeakyReLU(-0.5), nn.MaxPool2d(2), nn.Flatten(), last)
    up = nn.Sequential(conv, nn.MaxPool2d(2), nn.LeakyReLU(-0.5), nn.Flatten(), last)
    assert asked(*loaded(low, up)) is None


def wider(net: nn.Sequential, how: str) -> nn.Sequential:
    """A channel more: the first one split in halves, a copy that nobody reads, one that is constant or off."""
    made = copy.deepcopy(net)
    first, second = nn.Conv2d(2, 6, 3, padding=1), nn.Conv2d(6, 7, 3)
    with torch.no_grad():
        for new, old in ((first, net[0]), (second, net[3])):
            new.bias.copy_(old.bias) if new is second else new.bias[:5].copy_(old.bias)
        first.weight[:5].copy_(net[0].weight)
        second.weight[:, :5].copy_(net[3].weight)
        first.weight[5], first.bias[5] = net[0].weight[0], net[0].bias[0]
        second.weight[:, 5] = 0
        match how:
            case "split":
                second.weight[:, 0] /= 4
                second.weight[:, 5] = 3 * second.weight[:, 0]
            case "scaled split":
                first.weight[5] *= 8
                first.bias[5] *= 8
                second.weight[:, 5] = second.weight[:, 0] / 16
                second.weight[:, 0] /= 2
            case "constant":
                first.weight[5], first.bias[5] = 0, 0.5
                second.weight[:, 5] = 0
                second.weight[0, 5, 1, 1] = 2.0
                second.bias[0] -= 1.0
            case "off":
                first.weight[5], first.bias[5] = 0, -3.0
                second.weight[:, 5] = 7.0
            case "off on the box":
                first.weight[5], first.bias[5] = 0.01, -3.0
                second.weight[:, 5] = 7.0
    made[0], made[3] = first, second
    return made.eval()


@pytest.mark.parametrize("how", ["copy", "split", "scaled split", "constant", "off", "off on the box"])
def test_superfluous_channels(how):
    torch.manual_seed(2)
    net = nn.Sequential(
        nn.Conv2d(2, 5, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(5, 7, 3), nn.ReLU(), nn.Flatten(),
        nn.Linear(28, 3),
    )  # fmt: skip
    more = wider(net, how)
    structure = permutation_structure(more, torch.zeros(1, *SHAPE))
    a, b = loaded(net, structure.apply(more, structure.random(1)))
    box = fs.Box.cube(a.in_size)
    verdict = asked(a, b, box)
    assert verdict is not None and near(a, b, max(verdict.bound, 1e-12))
    assert asked(b, a, box) is not None
    assert (asked(a, b) is None) == (how == "off on the box")
    beyond = fs.Box.cube(a.in_size, -100, 100)
    assert (asked(a, b, beyond) is None) == (how == "off on the box")
    if how in ("copy", "scaled split", "off"):
        assert asked(a, b, tolerance=0).exact


def test_neurons_of_a_dense_layer_as_channels_of_a_convolution():
    """A convolution against its unrolled matrix, whose channels are in another order."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Conv2d(4, 3, 2), nn.ReLU(), nn.Flatten(), nn.Linear(27, 2))
    structure = permutation_structure(net, torch.zeros(1, 1, 6, 6))
    a, b = (fs.load(m, (1, 6, 6)) for m in (net, structure.apply(net, structure.random(0))))
    nodes = [
        Affine(n.source, Dense(n.operator.dense(), n.operator.in_shape), n.offset)
        if isinstance(n, Affine)
        else PiecewiseLinear(n.source, n.slopes, (n.slopes.size,))
        for n in b.nodes
    ]
    flat = Network.from_nodes(nodes, (36,), b.source)
    assert asked(a, flat, tolerance=0).exact
    nodes[2] = replace(nodes[2], operator=Dense(nodes[2].operator.matrix[::-1].copy()))
    assert asked(a, Network.from_nodes(nodes, (36,), b.source)) is None


def test_a_concatenation_of_activations_is_an_activation_of_a_concatenation():
    rng = np.random.default_rng(0)
    w, v, out = rng.normal(size=(3, 4)), rng.normal(size=(2, 4)), rng.normal(size=(2, 5))
    apart = Network.from_nodes(
        [
            Affine(0, Dense(w)), PiecewiseLinear(1, 0.0, (3,)), Affine(0, Dense(v)), PiecewiseLinear(3, 0.0, (2,)),
            Concat((4, 2), ((2,), (3,))), Affine(5, Dense(out)),
        ],
        (4,),
    )  # fmt: skip
    joined = Network([np.concatenate([w, v]), out[:, [2, 3, 4, 0, 1]]], [np.zeros(5), np.zeros(2)])
    assert asked(apart, joined, tolerance=0).exact
    wrong = Network([np.concatenate([w, v]), out], [np.zeros(5), np.zeros(2)])
    assert asked(apart, wrong) is None


def test_equal_neurons_leave_no_choice_open():
    """Ties: neurons with the same row, whose readers differ."""
    w = np.array([[1.0, 2.0], [1.0, 2.0], [2.0, 4.0], [0.0, 1.0]])
    v = np.arange(12.0).reshape(3, 4)
    a = Network([w, v, np.eye(3)[:1] + 1], [np.array([1, 1, 2, 0.0]), np.zeros(3), np.zeros(1)])
    order = [3, 2, 1, 0]
    b = Network([w[order], v[:, order], np.eye(3)[:1] + 1], [np.array([0, 2, 1, 1.0]), np.zeros(3), np.zeros(1)])
    assert asked(a, b, tolerance=0).exact
    off = v[:, order].copy()
    off[0, 1] += 1
    c = Network([w[order], off, np.eye(3)[:1] + 1], [np.array([0, 2, 1, 1.0]), np.zeros(3), np.zeros(1)])
    assert asked(a, c) is None


def perturbed(net: Network, share: float, rng: np.random.Generator) -> Network:
    nodes = []
    for node in net.nodes:
        if isinstance(node, Affine):
            numbers = node.operator.coefficients
            moved = numbers * (1 + share * rng.uniform(-1, 1, numbers.shape))
            bias = None if node.offset is None else node.offset * (1 + share * rng.uniform(-1, 1, node.offset.shape))
            shaped = None if bias is None else bias.reshape(node.operator.out_shape)
            node = Affine(node.source, node.operator.with_coefficients(moved), shaped)  # noqa: PLW2901
        nodes.append(node)
    return Network.from_nodes(nodes, net.input_shape, net.source)


@settings(max_examples=60, deadline=None)
@given(
    programs(styles=TAME), st.integers(0, 2**32 - 1), st.floats(-17.0, 0.0),
    st.sampled_from([None, 0.0, 1e-3, 10.0]), st.booleans(),
)  # fmt: skip
def test_what_is_said_holds_at_points(a, seed, size, tolerance, same):
    """In fractions, also where the channels are matched loosely, and whatever is claimed of the channels."""
    rng = np.random.default_rng(seed)
    b = a if same else perturbed(a, 10.0**size, rng)
    box = fs.Box.cube(a.in_size)
    question = Question.of(a, b, box, tolerance, 600)
    x = rng.uniform(-1, 1, a.in_size)
    gaps = [abs(p - q) for p, q in zip(fraction_values(a, x)[-1], fraction_values(b, x)[-1], strict=True)]
    room = 4 * (deviation(a, x, ROUNDINGS["float64"], 2) + deviation(b, x, ROUNDINGS["float64"], 2))
    allowed = [Fraction(float(e)) if tolerance is None else Fraction(tolerance) for e in room]
    found = by_channels(question)
    if found is not None:
        assert all(gap <= most for gap, most in zip(gaps, allowed, strict=True))
        assert found.bound is None or max(gaps) <= Fraction(found.bound)
    numbering = Numbering(*_prepared(question))
    widths = [numbering.views[k].channels for k in sorted(numbering.views)]
    claims = []
    for k, n in enumerate(widths, start=1):
        twin = rng.integers(1, k + 1)
        values = np.where(rng.random(n) < 0.5, k, twin)
        members = np.where(values == k, np.arange(n), rng.integers(0, n, n))
        claims.append(
            Claim(rng.integers(0, 4, n) * rng.integers(0, 2, n), values, members, 2.0 ** rng.integers(-1, 2, n))
        )
    forged = ChannelsAgree(tuple(claims)).check(question)
    if forged.ok:
        assert all(gap <= most for gap, most in zip(gaps, allowed, strict=True))


@settings(max_examples=30, deadline=None)
@given(programs(styles=TAME), st.integers(0, 2**32 - 1))
def test_a_program_is_itself(net, seed):
    assert asked(net, net, fs.Box.cube(net.in_size)) is not None
    assert any(isinstance(n, MaxPool | PiecewiseLinear) for n in net.nodes) or asked(net, net, tolerance=0).exact
