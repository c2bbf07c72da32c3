"""Counts along smooth curves that enclosures prove: against dense samples and balls, and where there is no proof."""

from __future__ import annotations

from itertools import pairwise

import flint
import numpy as np
import pytest
import torch
from torch import nn

import fiberscope as fs
from fiberscope.errors import InputError
from fiberscope.geometry.curves.enclosed import prove_count
from fiberscope.geometry.curves.latent import LatentEnclosure, latent_enclosure
from fiberscope.network.network import Network
from fiberscope.network.nodes import MaxPool
from fiberscope.numerics.algebra.bounded import Bounded
from fiberscope.numerics.smooth_functions import BENDS, LIBRARY, softplus

ENDS = {
    "Tanh": nn.Tanh,
    "Sigmoid": nn.Sigmoid,
    "SiLU": nn.SiLU,
    "GELU": nn.GELU,
    "ELU": nn.ELU,
    "Softplus": nn.Softplus,
}
BALLS = {
    "Tanh": lambda x: x.tanh(),
    "Sigmoid": lambda x: 1 / (1 + (-x).exp()),
    "SiLU": lambda x: x / (1 + (-x).exp()),
    "GELU": lambda x: x * (-x / flint.arb(2).sqrt()).erfc() / 2,
    "ELU": lambda x: x if x > 0 else x.exp() - 1,
    "Softplus": lambda x: (1 + x.exp()).log(),
    "Softplus 4": lambda x: (1 + (4 * x).exp()).log() / 4,
}


def segment_of(low: float, high: float) -> LatentEnclosure:
    found = latent_enclosure(fs.Segment([low], [high]))
    assert found is not None
    return found


def decoder(end: str, seed: int) -> nn.Sequential:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(3, 16), nn.ReLU(), nn.Linear(16, 12), ENDS[end]())


def exact_values(module: nn.Sequential, end: str, net: Network, z0: np.ndarray, z1: np.ndarray, t: float) -> list:
    """All preactivations of the network at one parameter, in balls of 200 bits, from the numbers of the modules."""

    def layer(x: list, weight: np.ndarray, bias: np.ndarray) -> list:
        rows = zip(weight.tolist(), bias.tolist(), strict=True)
        return [sum((flint.arb(w) * v for w, v in zip(row, x, strict=True)), flint.arb(b)) for row, b in rows]

    def relu(x: list) -> list:
        return [v.max(flint.arb(0)) for v in x]

    s = flint.arb(t)
    x = [flint.arb(a) + s * (flint.arb(b) - flint.arb(a)) for a, b in zip(z0.tolist(), z1.tolist(), strict=True)]
    arrays = [p.detach().double().numpy() for p in module.parameters()]
    x = layer(relu(layer(x, arrays[0], arrays[1])), arrays[2], arrays[3])
    x = [BALLS[end](v) for v in x]
    found = layer(x, net.weights[0], net.biases[0])
    return found + layer(relu(found), net.weights[1], net.biases[1])


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("seed", [0, 1])
def test_proven_counts(end: str, seed: int) -> None:
    module, net = decoder(end, seed), Network.random((12, 10, 6, 1), seed)
    z0, z1 = np.random.default_rng(seed).normal(scale=3.0, size=(2, 3))
    curve = fs.GeneratorCurve(module, z0, z1)
    found = fs.regions_along(net, curve)
    assert found.proven is not None and "proven by enclosures" in repr(found)
    t = np.linspace(0, 1, 20001)
    signs = net.signs(curve(t)).signs
    assert found.proven.num_regions == 1 + int((signs[1:] != signs[:-1]).sum())
    back = fs.regions_along(net, fs.GeneratorCurve(module, z1, z0))
    assert back.proven is not None and back.proven.num_regions == found.proven.num_regions
    with flint.ctx.workprec(200):
        for (a, b), neuron in list(zip(found.proven.intervals, found.proven.neurons, strict=True))[:3]:
            one, two = (exact_values(module, end, net, z0, z1, t)[neuron] for t in (a, b))
            assert (one > 0 and two < 0) or (one < 0 and two > 0)


def test_through_convolutions_and_several_bends() -> None:
    torch.manual_seed(3)
    module = nn.Sequential(
        nn.Sequential(nn.Linear(3, 32), nn.SiLU(), nn.Unflatten(1, (2, 4, 4))),
        nn.ConvTranspose2d(2, 2, 4, 2, 1),
        nn.LeakyReLU(0.2),
        nn.Conv2d(2, 1, 3, padding=1),
        nn.Tanh(),
    )
    net = Network.random((64, 12, 2), 1)
    curve = fs.GeneratorCurve(module, [4.0, -4.0, 2.0], [-4.0, 3.0, 1.0])
    found = fs.regions_along(net, curve)
    signs = net.signs(curve(np.linspace(0, 1, 20001))).signs
    assert found.proven is not None
    assert found.proven.num_regions == 1 + int((signs[1:] != signs[:-1]).sum())


def test_without_a_proof_the_answer_says_why() -> None:
    module = decoder("Tanh", 0)
    z0, z1 = [2.0, -3.0, 1.0], [-2.0, 2.0, -3.0]
    net = Network.random((12, 6, 1), 2)
    one = fs.regions_along(net, fs.GeneratorCurve(module, z0, z1))
    assert one.proven is not None and one.proven.num_regions > 1
    twice = Network(
        [np.repeat(net.weights[0], 2, axis=0), np.repeat(net.weights[1], 2, axis=1)],
        [np.repeat(net.biases[0], 2), net.biases[1]],
    )
    both = fs.regions_along(twice, fs.GeneratorCurve(module, z0, z1))
    assert both.proven is None and "not exact: crossings near t = " in repr(both)
    for odd in (nn.Softplus(beta=0.3), nn.ELU(alpha=0.7), nn.GELU(approximate="tanh")):
        plus = nn.Sequential(nn.Linear(3, 12), odd)
        assert type(odd).__name__ in fs.regions_along(net, fs.GeneratorCurve(plus, z0, z1)).reason
    dead = fs.load(nn.Sequential(nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(3, 2)), (1, 2, 6))
    lost = fs.regions_along(dead, fs.GeneratorCurve(module, z0, z1))  # all of a window dies at one place
    assert lost.proven is None and "cannot be told apart" in lost.reason


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("padding", [0, 1])
def test_max_pooling_is_proven_too(seed: int, padding: int) -> None:
    """Where the largest of a window changes, two margins vanish at one place: one crossing; against dense samples."""
    torch.manual_seed(seed)
    module = decoder(["Tanh", "GELU"][seed % 2], seed)
    pooled = nn.Sequential(nn.Conv2d(1, 2, 2), nn.MaxPool2d((1, 3), stride=(1, 2), padding=(0, padding)), nn.Flatten())
    width = pooled(torch.zeros(1, 1, 2, 6)).shape[1]
    net = fs.load(nn.Sequential(pooled, nn.Linear(width, 4), nn.ReLU(), nn.Linear(4, 1)), (1, 2, 6))
    z0, z1 = np.random.default_rng(seed).normal(scale=3.0, size=(2, 3))
    curve = fs.GeneratorCurve(module, z0, z1)
    found = fs.regions_along(net, curve)
    assert found.proven is not None
    signs = net.signs(curve(np.linspace(0, 1, 40001))).signs
    assert found.proven.num_regions == 1 + int((signs[1:] != signs[:-1]).any(axis=1).sum())


def test_pools_behind_a_bend_and_three_in_a_row() -> None:
    """max(tanh z, tanh -z, 1/2 - ...) by hand: margins, derivatives and windows of one input."""
    stage = Network.from_nodes([MaxPool.over(0, (3,), [[0, 1, 2], [2, -1, -1]])], (3,))
    line = Network([np.array([[1.0], [-1.0], [0.0]])], [np.array([0.0, 0.0, 0.3])])
    top = Network([[[1.0, 0.0]], [[1.0]]], [[-0.6], [0.0]])  # the largest against .6
    found = prove_count((line, BENDS["Tanh"], stage), top, segment_of(-2.0, 2.0))
    assert not isinstance(found, str) and found.num_regions == 3
    direct = prove_count((line, BENDS["Tanh"]), stage, segment_of(-2.0, 2.0))  # -z, then .3, then z is the largest
    assert not isinstance(direct, str) and direct.num_regions == 3
    np.testing.assert_allclose(direct.intervals.mean(axis=1) * 4 - 2, [-0.3, 0.3], atol=0.1)


def test_enclosures_hold_what_they_enclose() -> None:
    x = np.random.default_rng(0).normal(scale=4.0, size=400)
    x = np.concatenate([x, [0.0, 1e-9, -1e-9, 40.0, -40.0, 700.0, -700.0]])
    for name, bend in [*BENDS.items(), ("Softplus", softplus(1.0)), ("Softplus 4", softplus(4.0))]:
        value = bend.at(Bounded(x, np.zeros_like(x)))
        slope = bend.slopes(x, np.zeros_like(x), Bounded(np.ones_like(x), np.zeros_like(x)))
        wide = bend.slopes(x, np.full_like(x, 0.3), Bounded(np.ones_like(x), np.zeros_like(x)))
        with flint.ctx.workprec(2400):
            for k, point in enumerate(x.tolist()):
                exact = BALLS[name](flint.arb(point))
                assert abs(exact - flint.arb(float(value.value[k]))) <= flint.arb(float(value.error[k]))
                step = flint.arb(2) ** -400
                derivative = (BALLS[name](flint.arb(point) + step) - exact) / step
                assert abs(derivative - flint.arb(float(slope.value[k]))) <= flint.arb(float(slope.error[k]))
                assert abs(derivative) < flint.arb(bend.steepest) + flint.arb(10) ** -30
                other = (BALLS[name](flint.arb(point + 0.29) + step) - BALLS[name](flint.arb(point + 0.29))) / step
                assert abs(other - flint.arb(float(wide.value[k]))) <= flint.arb(float(wide.error[k]))
    assert LIBRARY < 1e-13


def test_the_work_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fiberscope.geometry.curves.enclosed._WORK", 1)
    line = Network([np.eye(2)], [np.zeros(2)])
    latent = latent_enclosure(fs.Segment([-1.0, 2.0], [1.0, -1.5]))
    assert latent is not None
    found = prove_count((line, BENDS["Tanh"]), Network.random((2, 3, 1), 0), latent)
    assert isinstance(found, str) and "the work was limited" in found


def test_a_decoder_of_the_house_is_exact() -> None:
    torch.manual_seed(5)
    module = nn.Sequential(
        nn.Linear(3, 32),
        nn.PReLU(),
        nn.Unflatten(1, (8, 2, 2)),
        nn.ConvTranspose2d(8, 4, 4, 2, 1),
        nn.BatchNorm2d(4),
        nn.ReLU(),
        nn.Upsample(scale_factor=2),
        nn.Conv2d(4, 4, 3, padding=1),
        nn.PixelShuffle(2),
        nn.Hardtanh(),
    ).eval()
    net = fs.load(nn.Sequential(nn.Conv2d(1, 2, 3, 2, 1), nn.ReLU(), nn.Flatten(), nn.Linear(128, 2)), (1, 16, 16))
    z0, z1 = np.array([2.0, -3.0, 1.0]), np.array([-2.0, 2.0, -3.0])
    curve = fs.GeneratorCurve(module, z0, z1)
    found = fs.regions_along(net, curve)
    assert curve.exact and found.certified and found.latent_regions is not None
    t = np.linspace(0, 1, 2001)
    both = curve.generator.network
    assert both is not None
    inner, outer = both.signs(z0 + t[:, None] * (z1 - z0)).signs, net.signs(curve(t)).signs
    changes = (outer[1:] != outer[:-1]).any(axis=1)
    assert found.num_regions >= 1 + int(changes.sum())
    assert found.latent_regions >= 1 + int(((inner[1:] != inner[:-1]).any(axis=1) | changes).sum())
    marks = np.concatenate([[0.0], found.breakpoints, [1.0]])
    middle = net.signs(curve((marks[1:] + marks[:-1]) / 2)).signs
    assert (middle[1:] != middle[:-1]).any(axis=1).all()


# --- latent circles, arcs and polylines ------------------------------------------------------------------------------


def changes(net: Network, curve: fs.GeneratorCurve, count: int = 20001) -> int:
    signs = net.signs(curve(np.linspace(*curve.interval, count))).signs
    return int((signs[1:] != signs[:-1]).sum())


@pytest.mark.parametrize("end", ["Tanh", "Softplus"])
def test_proven_counts_along_latent_circles_do_not_depend_on_the_start(end: str) -> None:
    module, net = decoder(end, 2), Network.random((12, 8, 1), 3)
    plane = np.linalg.qr(np.random.default_rng(0).normal(size=(3, 2)))[0].T
    found = []
    for start in (-np.pi, 0.7, 2.0):
        circle = fs.Circle([0.2, 0.1, -0.3], 3.0, plane, (start, start + 2 * np.pi))
        curve = fs.GeneratorCurve.along(module, circle)
        regions = fs.regions_along(net, curve)
        assert curve.closed and regions.proven is not None and "of the loop) of the smooth curve" in repr(regions)
        assert regions.proven.num_regions - 1 == changes(net, curve) == regions.num_regions_closed
        found.append(regions.proven.num_regions)
    assert len(set(found)) == 1 and found[0] > 2


def test_a_latent_polyline_has_the_crossings_of_its_segments() -> None:
    module, net = decoder("Sigmoid", 4), Network.random((12, 8, 1), 5)
    corners = np.random.default_rng(1).normal(scale=3.0, size=(4, 3))
    whole = fs.regions_along(net, fs.GeneratorCurve.along(module, fs.Polyline(corners)))
    parts = [fs.regions_along(net, fs.GeneratorCurve(module, a, b)) for a, b in pairwise(corners)]
    assert whole.proven is not None
    total = sum(part.proven.num_regions - 1 for part in parts if part.proven is not None)
    assert whole.proven.num_regions - 1 == total == changes(net, whole.curve)
    arcs = fs.Tractrix(plane=np.eye(2, 3), interval=(0.5, 3.0))
    bent = fs.regions_along(net, fs.GeneratorCurve.along(module, arcs))
    assert bent.proven is not None and bent.proven.num_regions == 1 + changes(net, bent.curve)


@pytest.mark.parametrize("seed", range(4))
def test_latent_circles_through_piecewise_linear_generators_are_exact(seed: int) -> None:
    inner, net = Network.random((3, 6, 5), seed), Network.random((5, 6, 4, 1), seed + 50)
    plane = np.linalg.qr(np.random.default_rng(seed).normal(size=(3, 2)))[0].T
    counts = []
    for start in (-np.pi, -1.3, 0.4):
        curve = fs.GeneratorCurve.along(inner, fs.Circle([0.1, 0.0, 0.2], 2.0, plane, (start, start + 2 * np.pi)))
        found = fs.regions_along(net, curve)
        assert found.certified and curve.exact
        assert found.num_regions_closed == max(1, changes(net, curve))
        assert len(found.signs) == found.num_regions
        counts.append((found.num_regions_closed, found.num_pieces_closed, found.latent_regions - found.found.closes))
        t = np.union1d(np.linspace(*curve.interval, 4001), fs.regions_along(inner, curve.path).breakpoints)
        assert curve.length == pytest.approx(np.linalg.norm(np.diff(curve(t), axis=0), axis=1).sum(), rel=1e-5)
        assert found.lengths.sum() == pytest.approx(curve.length)
        ahead = (curve([start + 2 + 1e-7]) - curve([start + 2])) / 1e-7
        np.testing.assert_allclose(curve.derivative([start + 2]), ahead, rtol=1e-4, atol=1e-5)
    assert len(set(counts)) == 1


def test_lengths_of_images_that_are_folded_flat() -> None:
    """``|x|`` along the circle goes from 1 to 0 and back, twice; a tractrix goes ``t - tanh t`` along its axis."""
    fold = Network([[[1.0, 0.0], [-1.0, 0.0]], [[1.0, 1.0]]], [[0.0, 0.0], [0.0]])
    curve = fs.GeneratorCurve.along(fold, fs.Circle(interval=(0.3, 0.3 + 2 * np.pi)))
    assert curve.length == pytest.approx(4.0, rel=1e-12)
    assert curve.arc_length([np.pi])[0] == pytest.approx(1 + np.cos(0.3), rel=1e-12)
    axis = fs.GeneratorCurve.along(fold, fs.Tractrix(interval=(-2.0, 3.0)))
    assert axis.length == pytest.approx(2 - np.tanh(2) + 3 - np.tanh(3), rel=1e-9)
    whole = fs.GeneratorCurve.along(Network([np.eye(2)], [np.zeros(2)]), fs.Tractrix(interval=(-2.0, 3.0)))
    assert whole.length == pytest.approx(fs.Tractrix(interval=(-2.0, 3.0)).length, rel=1e-9)


def test_a_loop_that_closes_on_a_breakpoint() -> None:
    """The first coordinate of the image vanishes at the top and the bottom of the circle."""
    inner = Network([np.array([[1.0, 0.0], [0.0, 1.0]])], [np.zeros(2)])
    net = Network([[[1.0, 0.0]], [[1.0]]], [[0.0], [0.0]])
    for start, closes in ((-np.pi / 2, True), (-np.pi, False)):
        circle = fs.Circle(interval=(start, start + 2 * np.pi))
        found = fs.regions_along(net, fs.GeneratorCurve.along(inner, circle))
        assert found.found.closes == closes and found.num_regions_closed == 2 == found.latent_regions - (not closes)
    kink = Network([[[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0]], [[1.0, 1.0, 0.0]]], [np.zeros(3), [1.0]])
    found = fs.regions_along(
        Network.random((1, 3, 1), 1), fs.GeneratorCurve.along(kink, fs.Circle(interval=(-np.pi / 2, 1.5 * np.pi)))
    )
    assert not found.found.closes  # only the generator switches there
    assert len(found.signs) == found.num_regions


def test_latent_curves_that_are_refused() -> None:
    inner = Network.random((2, 3, 2), 0)
    with pytest.raises(InputError, match="curve of the latent space, got ndarray"):
        fs.GeneratorCurve.along(inner, np.zeros((3, 2)))
    with pytest.raises(InputError, match="expected 2 numbers"):
        fs.GeneratorCurve.along(inner, fs.Circle(), shape=(3, 1))
    free = fs.Curve(lambda t: np.stack([t, t**2, t], axis=1), (-1.0, 1.0))
    found = fs.regions_along(Network.random((12, 3, 1), 0), fs.GeneratorCurve.along(decoder("Tanh", 0), free))
    assert found.proven is None and "interpolant" in found.reason
