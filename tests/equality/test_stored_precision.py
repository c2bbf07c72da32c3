"""Equality up to the rounding of the precision in which parameters are stored."""

from __future__ import annotations

import copy
import json
import warnings
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import assume, given, reject, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn.utils.fusion import fuse_conv_bn_eval, fuse_linear_bn_eval

import fiberscope as fs
from fiberscope.equality.checker import check
from fiberscope.equality.rounding import closer_deviation, deviation
from fiberscope.equality.rungs.structure import LayerOrder
from fiberscope.equality.verdict import Verdict
from fiberscope.errors import InputError
from fiberscope.network.action.chain import Symmetry
from fiberscope.network.network import Network
from fiberscope.network.nodes import Affine, Concat, MaxPool, PiecewiseLinear
from fiberscope.network.operators import Dense, Gather
from fiberscope.network.source import Source
from fiberscope.numerics.ulps import ROUNDINGS
from fiberscope.testing import fraction_values
from fiberscope.testing.hostile import BLOCKS, TAME, programs

SHAPE = (3, 8, 8)


def trained(module: nn.Module, seed: int = 0) -> nn.Module:
    """Batch normalisation with statistics as after training; some channels hardly vary."""
    torch.manual_seed(seed)
    for part in module.modules():
        if isinstance(part, nn.BatchNorm1d | nn.BatchNorm2d):
            part.running_mean.normal_(0, 2)
            part.running_var.uniform_(0.05, 3)
            part.running_var[0] = 1e-3
            nn.init.normal_(part.weight)
            nn.init.normal_(part.bias)
    return module.eval()


class Residual(nn.Module):
    """Normalisation behind, in front of and beside convolutions; a sum, a concatenation, both kinds of pooling."""

    def __init__(self) -> None:
        super().__init__()
        self.enter, self.first = nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4)
        self.one, self.norm = nn.Conv2d(4, 4, 3, padding=1, bias=False), nn.BatchNorm2d(4)
        self.wide, self.after = nn.Conv2d(4, 4, 1, groups=2), nn.BatchNorm2d(4)
        self.last, self.end = nn.Linear(8, 6), nn.BatchNorm1d(6)
        self.out = nn.Linear(6, 3)

    def forward(self, x):
        x = nn.functional.max_pool2d(torch.relu(self.first(self.enter(x))), 2)
        y = torch.relu(self.norm(self.one(x)) + x)
        z = nn.functional.leaky_relu(self.after(self.wide(y)), 0.1)
        z = torch.cat([y, z], dim=1).mean(dim=(2, 3))
        return self.out(torch.relu(self.end(self.last(z))))


class Folded(nn.Module):
    def __init__(self, r: Residual) -> None:
        super().__init__()
        self.enter = fuse_conv_bn_eval(r.enter, r.first)
        self.one, self.wide = fuse_conv_bn_eval(r.one, r.norm), fuse_conv_bn_eval(r.wide, r.after)
        self.last, self.out = fuse_linear_bn_eval(r.last, r.end), r.out

    def forward(self, x):
        x = nn.functional.max_pool2d(torch.relu(self.enter(x)), 2)
        y = torch.relu(self.one(x) + x)
        z = nn.functional.leaky_relu(self.wide(y), 0.1)
        z = nn.functional.adaptive_avg_pool2d(torch.cat([y, z], dim=1), 1).flatten(1)
        return self.out(torch.relu(self.last(z)))


def sequential() -> tuple[nn.Module, nn.Module]:
    parts = [nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Conv2d(4, 5, 2), nn.BatchNorm2d(5), nn.Linear(20, 7)]
    parts = [*parts, nn.BatchNorm1d(7), nn.Linear(7, 2)]
    whole = trained(nn.ModuleList(parts))
    a, p, b, q, c, r, d = whole
    middle = lambda: [nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()]  # noqa: E731
    plain = nn.Sequential(a, p, nn.ReLU(), b, q, *middle(), c, r, nn.LeakyReLU(), d).eval()
    folded = [fuse_conv_bn_eval(a, p), nn.ReLU(), fuse_conv_bn_eval(b, q), *middle(), fuse_linear_bn_eval(c, r)]
    return plain, nn.Sequential(*folded, nn.LeakyReLU(), d).eval()


def residual() -> tuple[nn.Module, nn.Module]:
    made = trained(Residual())
    return made, Folded(made).eval()


MODELS = {"sequential": sequential, "residual": residual}


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("where", ["space", "box"])
def test_folded_batch_normalisation_is_equal_up_to_float32(name, where, tmp_path):
    a, b = (fs.load(m, SHAPE) for m in MODELS[name]())
    box = fs.Box.cube(a.in_size, 0, 1) if where == "box" else None
    verdict = fs.equivalent(a, b, box)
    assert verdict.equal is True, verdict.reason
    assert verdict.precision == "float32" and verdict.kind == "up to float32 rounding"
    assert 0 < verdict.residual <= 8
    verdict.save(tmp_path / "p.json")
    assert fs.verify(tmp_path / "p.json", a, b).ok
    if box is None:
        assert verdict.bound is None
        return
    assert 0 < verdict.bound < 1e-2
    x = np.random.default_rng(0).uniform(size=(200, a.in_size))
    assert np.abs(a(x) - b(x)).max() <= verdict.bound
    assert fs.equivalent(a, b, box, tolerance=verdict.bound).equal is True
    assert fs.equivalent(a, b, box, tolerance=0).equal is False


@pytest.mark.parametrize("name", MODELS)
def test_a_changed_weight_is_more_than_rounding(name):
    plain, folded = MODELS[name]()
    a = fs.load(plain, SHAPE)
    with torch.no_grad():
        next(folded.parameters())[1, 0, 0, 0] += 1e-2
    b = fs.load(folded, SHAPE)
    verdict = fs.equivalent(a, b, fs.Box.cube(a.in_size, 0, 1))
    assert verdict.equal is False
    assert verdict.counterexample.difference > verdict.counterexample.allowed


def test_foldings_that_cancel_are_different_and_say_in_what_sense():
    """Two orders of one folding: the biases cancel, so what is stored is many units apart, and the functions are."""
    source = torch.Generator().manual_seed(0)
    draw = lambda: torch.rand(8, generator=source) + 0.5  # noqa: E731  # one line for a test
    model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 2)).eval()
    layer, norm = model[0], model[1]
    with torch.no_grad():
        layer.weight.mul_(1e-6)
        for part in (layer.bias, norm.running_mean, norm.running_var, norm.weight):
            part.copy_(10 * draw())
        s = norm.weight / torch.sqrt(norm.running_var + norm.eps)
        norm.bias.copy_(-(layer.bias - norm.running_mean) * s + 1e-6 * draw())
        biases = (
            (layer.bias - norm.running_mean) * s + norm.bias,
            layer.bias * s + (norm.bias - norm.running_mean * s),
        )
        foldings = []
        for bias in biases:
            folded = nn.Linear(4, 8)
            folded.weight.copy_(layer.weight * s[:, None])
            folded.bias.copy_(bias)
            foldings.append(fs.load(nn.Sequential(folded, nn.ReLU(), model[3]).eval(), input_shape=(4,)))
    box = fs.Box.cube(4)
    for net in foldings:
        assert fs.equivalent(fs.load(model, input_shape=(4,)), net, box).equal
    verdict = fs.equivalent(*foldings, box)
    assert verdict.equal is False and "than a few units of float32 in every stored parameter explain" in verdict.reason
    assert verdict.counterexample.difference > verdict.counterexample.allowed


@pytest.mark.parametrize("kind", [torch.float16, torch.bfloat16])
def test_half_precision_copies(kind, tmp_path):
    _, folded = sequential()
    a = fs.load(folded, SHAPE)
    b = fs.load(folded.to(kind), SHAPE)
    verdict = fs.equivalent(a, b, fs.Box.cube(a.in_size, 0, 1))
    assert verdict.equal is True and verdict.precision == str(kind).removeprefix("torch.")
    assert verdict.residual <= 1.01 and verdict.bound > 0
    verdict.save(tmp_path / "p.json")
    assert fs.verify(tmp_path / "p.json").ok
    # as float32 models they are different
    both = [net.with_source(Source("float32")) for net in (a, b)]
    assert fs.equivalent(*both, fs.Box.cube(a.in_size, 0, 1)).equal is False


def test_the_exporter_folds(tmp_path):
    plain, _ = sequential()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(plain, (torch.zeros(1, *SHAPE),), tmp_path / "m.onnx", dynamo=False)
    a, b = fs.load(plain, SHAPE), fs.load(tmp_path / "m.onnx")
    assert len(b.nodes) < len(a.nodes)  # it did fold
    assert fs.equivalent(a, b).equal is True


def test_slopes_and_scales_are_stored_too():
    """A slope of 0.01 in float32, and a permuted, rescaled copy that was stored in float32."""
    net = Network.random((3, 5, 4, 2), 0)
    leaky = [Network(net.weights, net.biases, "leaky_relu", slope=s) for s in (0.01, float(np.float32(0.01)))]
    a, b = (n.with_source(Source("float32")) for n in leaky)
    assert fs.equivalent(a, b).equal is True
    assert fs.equivalent(*leaky).equal is False
    moved = Symmetry.random(net.widths, 1, dyadic=False)(net)
    stored = Network([w.astype(np.float32) for w in moved.weights], [b.astype(np.float32) for b in moved.biases])
    verdict = fs.equivalent(net, stored, fs.Box.cube(3))
    assert verdict.equal is True and verdict.method == "symmetry" and verdict.precision == "float32"
    assert verdict.bound > 0


def test_the_same_layers_in_another_layout_are_the_same_real_function():
    torch.manual_seed(0)
    layer = nn.Linear(6, 4)
    a = fs.load(nn.Sequential(layer, nn.ReLU(), nn.Linear(4, 1)), (6,))
    kernel = nn.Conv1d(6, 4, 1)
    with torch.no_grad():
        kernel.weight.copy_(layer.weight[:, :, None])
        kernel.bias.copy_(layer.bias)
    last = nn.Linear(4, 1)
    with torch.no_grad():
        last.weight.copy_(torch.tensor(a.weights[1].tolist()))
        last.bias.copy_(torch.tensor(a.biases[1].tolist()))
    b = fs.load(nn.Sequential(kernel, nn.ReLU(), nn.Flatten(), last), (6, 1))
    verdict = fs.equivalent(a, b, tolerance=0)
    assert verdict.equal is True and verdict.exact and verdict.method == "layers"


# -- laws --------------------------------------------------------------------------------------------------------------


def perturbed(net: Network, share: float, least: float, rng: np.random.Generator) -> Network:
    """Every stored number off by at most ``share`` of itself, or of the smallest normal one; a gather stores none."""

    def near(x):
        return x + share * np.maximum(np.abs(x), least) * rng.uniform(-0.99, 0.99, x.shape)

    nodes = []
    for node in net.nodes:
        if isinstance(node, Affine) and not isinstance(node.operator, Gather):
            operator = node.operator.with_coefficients(near(node.operator.coefficients))
            nodes.append(Affine(node.source, operator, None if node.bias is None else near(node.bias)))
        elif isinstance(node, PiecewiseLinear):
            slopes = np.where((node.slopes == 0) | (node.slopes == 1), node.slopes, near(node.slopes))
            nodes.append(PiecewiseLinear(node.source, slopes, node.shape))
        else:
            nodes.append(node)
    return Network.from_nodes(nodes, net.input_shape, net.source)


def test_zeros_that_rounding_made_subnormal_are_compared_behind_a_concatenation():
    """Between two activations a concatenation multiplies by ones, which loses nothing."""

    def program(tiny):
        nodes = [
            Affine(0, Dense(np.eye(2))),
            PiecewiseLinear(1, np.zeros(2), (2,)),
            Concat((2, 2), ((2,), (2,))),
            Affine(3, Dense(np.array([[1.0, tiny, -3.0, tiny]])), np.ones(1)),
            PiecewiseLinear(4, np.zeros(1), (1,)),
            Affine(5, Dense(np.ones((1, 1)))),
        ]
        return Network.from_nodes(nodes, (2,))

    verdict = fs.equivalent(program(0.0), program(5e-324))
    assert verdict.equal is True and verdict.method == "layers"
    assert fs.equivalent(program(0.0), program(1e-3)).equal is False


def test_products_that_vanish_in_floats_are_no_proof(tmp_path):
    """1e-200 * 1e-200 is not zero: a bias that underflows behind two affine maps makes another real function."""

    def program(bias):
        nodes = [
            Affine(0, Dense(np.zeros((1, 1))), np.array([bias])),
            Affine(1, Dense(np.array([[1e-200]]))),
            PiecewiseLinear(2, np.zeros(1), (1,)),
            Affine(3, Dense(np.ones((1, 1)))),
        ]
        return Network.from_nodes(nodes, (1,))

    a, b = program(1e-200), program(0.0)
    assert fraction_values(a, np.zeros(1))[-1] != fraction_values(b, np.zeros(1))[-1]
    assert fs.equivalent(a, b, tolerance=0).equal is False
    forged = Verdict(True, "layers", fs.Space(1), 0.0, LayerOrder((0,)), networks=(a, b))
    forged.save(tmp_path / "proof.json")
    assert not fs.verify(tmp_path / "proof.json").ok


ALONE = [block for block in BLOCKS if block != "spread"]
"""Blocks with one stored map between two switches. Two in a row are off by twice as much as a number may be."""


@settings(max_examples=20)
@given(programs(styles=TAME, blocks=["spread"]), st.sampled_from(sorted(ROUNDINGS)), st.integers(0, 2**32 - 1))
def test_rounding_of_two_maps_in_a_row_is_no_difference_either(net, precision, seed):
    rounding = ROUNDINGS[precision]
    net = net.with_source(Source(precision))
    rng = np.random.default_rng(seed)
    assert fs.equivalent(net, perturbed(net, rounding.share, rounding.least, rng), time_limit=2).equal is not False
    nearer = perturbed(net, rounding.share / 8, rounding.least, rng)  # an activation of slope 1 makes four in a row
    assert fs.equivalent(net, nearer, time_limit=10).equal is True


@settings(max_examples=60)
@given(programs(styles=TAME, blocks=ALONE), st.sampled_from(sorted(ROUNDINGS)), st.integers(0, 2**32 - 1))
def test_rounding_is_never_called_a_difference(net, precision, seed):
    rng = np.random.default_rng(seed)
    rounding = ROUNDINGS[precision]
    net = net.with_source(Source(precision))
    other = perturbed(net, rounding.share, rounding.least, rng)
    verdict = fs.equivalent(net, other, time_limit=10)
    assert verdict.equal is not False and verdict.precision == precision
    if not net.linear_entries.any():  # behind a linear neuron there are two maps in a row
        assert verdict.equal is True
    x = rng.normal(size=net.in_size)
    bound = deviation(net, x, rounding)
    exact = zip(fraction_values(net, x)[-1], fraction_values(other, x)[-1], bound, strict=True)
    assert all(abs(p - q) <= Fraction(float(e)) for p, q, e in exact)


@settings(max_examples=100)
@given(programs(), st.sampled_from(sorted(ROUNDINGS)), st.integers(0, 2**32 - 1), st.sampled_from([1, 2, 64, 2**16]))
def test_movement_by_derivatives_is_a_bound(net, precision, seed, times):
    """Of hostile numbers too, and of movements so large that signs are not certain."""
    rng, rounding = np.random.default_rng(seed), ROUNDINGS[precision]
    share, outputs = min(times * rounding.share, 0.5), list(range(net.out_size))
    x = rng.normal(size=net.in_size) * rng.choice([1.0, 1e-8, 1e8])
    bound = closer_deviation(net, x, rounding, outputs, share / rounding.share)
    assert not (bound > deviation(net, x, rounding, share / rounding.share)).any()
    with np.errstate(over="ignore"):
        try:
            other = perturbed(net, share, rounding.least, rng)
        except InputError:  # beyond the floats
            reject()
    exact = zip(fraction_values(net, x)[-1], fraction_values(other, x)[-1], bound.tolist(), strict=True)
    assert all(not np.isfinite(e) or abs(p - q) <= Fraction(e) for p, q, e in exact)


def test_one_wrong_weight_of_a_convolutional_network_is_seen(tmp_path):
    """Bounds that add up what cancels allow ten times as much there."""
    torch.manual_seed(0)
    layers = [layer for n in (3, 8, 8, 8) for layer in (nn.Conv2d(n, 8, 3, padding=1), nn.ReLU())]
    module = nn.Sequential(*layers, nn.AvgPool2d(2), nn.Flatten(), nn.Linear(128, 5))
    wrong = copy.deepcopy(module)
    with torch.no_grad():
        wrong[4].weight[2, 1, 1, 1] += 1e-3
    a, b = (fs.load(part, SHAPE) for part in (module, wrong))
    verdict = fs.equivalent(a, b, time_limit=20)
    assert verdict.equal is False
    verdict.save(tmp_path / "proof.json")
    assert fs.verify(tmp_path / "proof.json").ok
    assert "differ by" in check(json.loads((tmp_path / "proof.json").read_text()))[2]
    x = verdict.evidence.x
    loose = deviation(a, x, ROUNDINGS["float32"], 2) + deviation(b, x, ROUNDINGS["float32"], 2)
    assert verdict.evidence.difference < loose.max()


@settings(max_examples=60)
@given(programs(styles=TAME), st.sampled_from(sorted(ROUNDINGS)), st.integers(0, 2**32 - 1), st.floats(0.0, 4.0))
def test_bounds_of_layers_hold(net, precision, seed, times):
    """Equal within the proven bound, also where the layers are further apart than rounding."""
    rng = np.random.default_rng(seed)
    rounding = ROUNDINGS[precision]
    net = net.with_source(Source(precision))
    other = perturbed(net, 10.0**times * rounding.unit, rounding.least, rng)
    box = fs.Box.cube(net.in_size, -1, 2)
    verdict = fs.equivalent(net, other, box, time_limit=1)
    assume(verdict.equal is True and verdict.bound is not None)
    for _ in range(3):
        x = rng.uniform(-1, 2, net.in_size)
        exact = zip(fraction_values(net, x)[-1], fraction_values(other, x)[-1], strict=True)
        assert max(abs(p - q) for p, q in exact) <= Fraction(verdict.bound)


@settings(max_examples=40)
@given(programs(styles=TAME), st.integers(0, 2**32 - 1), st.floats(-17.0, 0.0), st.sampled_from([None, 0.0, 1e-3]))
def test_forged_layers_are_refused(tmp_path_factory, a, seed, size, tolerance):
    """What verifies holds at points, in fractions, whatever order of layers is claimed of whatever copy."""
    rng = np.random.default_rng(seed)
    b = perturbed(a, 10.0**size, 0.0, rng)
    path = tmp_path_factory.mktemp("forged") / "p.json"
    count = sum(isinstance(node, PiecewiseLinear | MaxPool) for node in a.nodes)
    x = rng.uniform(-1, 1, a.in_size)
    exact = [abs(p - q) for p, q in zip(fraction_values(a, x)[-1], fraction_values(b, x)[-1], strict=True)]
    room = deviation(a, x, ROUNDINGS["float64"], 2) + deviation(b, x, ROUNDINGS["float64"], 2)
    allowed = [Fraction(float(e)) if tolerance is None else Fraction(tolerance) for e in room]
    for order in (range(count), range(1), (0, 0), (-1,), range(count)[::-1]):
        Verdict(True, "layers", fs.Box.cube(a.in_size), tolerance, LayerOrder(tuple(order)), networks=(a, b)).save(path)
        if fs.verify(path).ok:
            assert all(gap <= most for gap, most in zip(exact, allowed, strict=True))
