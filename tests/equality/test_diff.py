"""What changed: layers, pruned and quantised numbers, tensors of checkpoints, streamed."""

from __future__ import annotations

import copy
import json

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import nn
from torch.nn.utils.fusion import fuse_conv_bn_eval
from typer.testing import CliRunner

import fiberscope as fs
from fiberscope.cli.app import app
from fiberscope.connectivity.structure import permutation_structure
from fiberscope.numerics.grids import find_grid
from fiberscope.numerics.ulps import DOUBLE, ROUNDINGS

SHAPE = (2, 8, 8)


def model() -> nn.Sequential:
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Conv2d(2, 6, 3), nn.BatchNorm2d(6), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(6, 5, 2), nn.ReLU(), nn.Flatten(),
        nn.Linear(20, 7), nn.ReLU(), nn.Linear(7, 3),
    )  # fmt: skip
    net[1].running_mean.uniform_(-1, 1)
    net[1].running_var.uniform_(0.5, 2)
    return net.eval()


def folded(net: nn.Sequential) -> nn.Sequential:
    return nn.Sequential(fuse_conv_bn_eval(net[0], net[1]), *copy.deepcopy(list(net[2:]))).eval()


def asked(a: nn.Module, b: nn.Module) -> fs.Difference:
    return fs.diff(fs.load(a, SHAPE), fs.load(b, SHAPE))


def test_symmetric_and_fused_copies_did_not_change():
    net = model()
    assert asked(net, copy.deepcopy(net)).same and not asked(net, net).remarks
    structure = permutation_structure(net, torch.zeros(1, *SHAPE))
    moved = asked(net, folded(structure.apply(net, structure.random(1))))
    assert moved.same and not moved
    assert moved.layers[0].status == "rounded" and {layer.status for layer in moved.layers} <= {"rounded", "same"}
    assert moved.layers[0].maps == (3, 1) and "fused" in moved.layers[0].remarks
    assert moved.layers[0].reordered and moved.layers[0].rescaled
    assert all(layer.change is not None and layer.change < 1e-6 for layer in moved.layers)


def test_a_change_is_told_where_it_is():
    net = model()
    other = folded(net)
    with torch.no_grad():
        weight = other[3].weight
        step = weight.abs().max() / 127
        weight.copy_((weight / step).round() * step)
        other[6].weight[2], other[6].bias[2] = 0, 0
    structure = permutation_structure(other, torch.zeros(1, *SHAPE)).only("permutation")
    found = asked(net, structure.apply(other, structure.random(4)))
    names = [layer.name for layer in found.layers]
    assert names == ["0", "4", "7", "9"]
    first, second, third, last = found.layers
    assert first.status == "rounded" and first.grid is None
    assert second.status == "changed" and 1e-4 < second.change < 2e-2
    assert second.grid.step == pytest.approx(float(step), rel=1e-6) and second.grid.levels <= 255
    assert third.pruned == 1 and third.status == "same" and last.status == "changed"
    assert found and not found.same and any("grid" in line for line in found.remarks)
    assert len(found._columns()["name"]) == 4


def test_terms_that_cancelled_when_batch_normalisation_was_folded():
    rng = np.random.default_rng(0)
    w, b, mean, scale = (rng.normal(size=shape).astype(np.float32) for shape in ((6, 4), 6, 6, 6))
    shift = -(b - mean) * scale
    folds = [(b - mean) * scale + shift, b * scale + (shift - mean * scale)]  # as two exporters do it
    rest = rng.normal(size=(2, 6)).astype(np.float32), np.zeros(2, np.float32)
    a, c = (fs.Network([w * scale[:, None], rest[0]], [bias, rest[1]]) for bias in folds)
    assert not folds[0].any() and folds[1].any()
    found = fs.diff(a, c)
    assert found.same and found.layers[0].status == "rounded" and found.layers[0].largest == np.abs(folds[1]).max()
    moved = fs.Network([w * scale[:, None], rest[0]], [folds[0] + np.float32(1e-5), rest[1]])
    assert fs.diff(a, moved).layers[0].status == fs.diff(moved, a).layers[0].status == "changed"
    order = rng.permutation(6)
    mixed = fs.Network([(w * scale[:, None])[order], rest[0][:, order]], [folds[1][order], rest[1]])
    assert fs.diff(a, mixed).same and fs.diff(a, mixed).layers[0].reordered


def test_layers_without_neurons_of_their_own_are_compared_too():
    rng = np.random.default_rng(1)
    w, u, out = rng.normal(size=(4, 3)), rng.normal(size=(4, 4)), rng.normal(size=(2, 4))
    last = np.zeros(2)
    constant = fs.Network([w, 0 * u, u, out], [np.ones(4), np.ones(4), -np.ones(4), last])
    passed = fs.Network([w, np.eye(4), u, out], [np.ones(4), np.zeros(4), -np.ones(4), last])
    for net in (constant, passed):
        assert not fs.diff(net, net).remarks
        changed = fs.Network([*net.weights[:-1], out + 1], [*net.biases[:-1], last])
        assert [layer.status for layer in fs.diff(net, changed).layers] == ["same", "same", "same", "changed"]


def test_slopes_are_stored_numbers_too():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(3, 5), nn.PReLU(init=0.01), nn.Linear(5, 2))
    half = copy.deepcopy(net).half()
    found = fs.diff(net, half)
    assert found.same and found.precision == "float16" and found.layers[0].status == "rounded"
    with torch.no_grad():
        half[1].weight.fill_(0.02)
    assert not fs.diff(net, half).same


def test_pools_stay_where_they_stood_if_that_agrees():
    class Pooled(nn.Module):
        """The pool can be put before the activation, unless something stands between the two."""

        def __init__(self, between: float) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.first, self.pool, self.last, self.between = (
                nn.Conv2d(1, 2, 3),
                nn.MaxPool2d(2),
                nn.Linear(2, 2),
                between,
            )

        def forward(self, x):
            value = torch.relu(self.first(x))
            return self.last(self.pool(value if self.between == 1 else value * self.between / self.between).flatten(1))

    found = fs.diff(*(fs.load(Pooled(between).eval(), (1, 4, 4)) for between in (1.0, 2.0)))
    assert found.same and {layer.status for layer in found.layers} == {"same"}


def test_layers_come_and_go():
    rng = np.random.default_rng(0)
    w, v, u = rng.normal(size=(4, 3)), rng.normal(size=(5, 4)), rng.normal(size=(2, 5))
    short = fs.Network([w, u[:, :4]], [np.ones(4), np.zeros(2)])
    long = fs.Network([w, v, u], [np.ones(4), np.ones(5), np.zeros(2)])
    more, less = fs.diff(short, long), fs.diff(long, short)
    assert [layer.status for layer in more.layers].count("added") == 1
    assert [layer.status for layer in less.layers].count("removed") == 1
    assert more.layers[0].status == less.layers[0].status == "same"
    with pytest.raises(fs.InputError, match="same inputs"):
        fs.diff(short, fs.Network([[[1.0]]], [[0.0]]))


def test_tensors_by_name():
    rng = np.random.default_rng(0)
    a = {"emb": rng.normal(size=(30, 8)), "w": rng.normal(size=(8, 8)), "v": rng.normal(size=(4, 8)), "n": np.arange(3)}
    b = {name: value.copy() for name, value in a.items()}
    b["w"] = b["w"][rng.permutation(8)][:, rng.permutation(8)]
    b["v"] = np.round(b["v"] / 0.125) * 0.125
    b["v"][1] = 0
    b["emb"] = (b["emb"].astype(np.float16)).astype(np.float64)
    b["head"] = np.ones((2, 2))
    del b["n"]
    found = fs.diff(a, b)
    by_name = {layer.name: layer for layer in found.layers}
    assert found.by == "tensors" and found.precision == "float64"
    assert by_name["w"].status == "same" and by_name["w"].reordered > 0
    assert by_name["v"].pruned == 1 and by_name["v"].grid.step == 0.125
    assert by_name["emb"].status == "changed" and by_name["emb"].change < 1e-3
    assert by_name["head"].status == "added" and by_name["n"].status == "removed"
    half = fs.diff({"w": a["w"].astype(np.float32)}, {"w": a["w"].astype(np.float16)})
    assert half.layers[0].status == "rounded" and half.precision == "float16"
    odd = fs.diff({"w": a["w"]}, {"w": np.full((8, 8), np.nan)})
    assert odd.layers[0].status == "changed"


def test_shards_and_modules(tmp_path):
    torch.manual_seed(0)
    net = nn.TransformerEncoderLayer(8, 2, 12)
    state = net.state_dict()
    names = sorted(state)
    for folder, dtype in (("one", torch.float32), ("two", torch.bfloat16)):
        (tmp_path / folder).mkdir()
        halves = {"a.safetensors": names[::2], "b.safetensors": names[1::2]}
        for file, held in halves.items():
            save_file({name: state[name].to(dtype) for name in held}, tmp_path / folder / file)
        index = {"weight_map": {name: file for file, held in halves.items() for name in held}}
        (tmp_path / folder / "model.safetensors.index.json").write_text(json.dumps(index))
    found = fs.diff(tmp_path / "one", str(tmp_path / "two"))
    assert len(found.layers) == len(names) and found.precision == "bfloat16" and found.same
    assert any(layer.status == "rounded" for layer in found.layers)
    single = fs.diff(tmp_path / "one" / "a.safetensors", tmp_path / "one")
    assert [layer.status for layer in single.layers].count("added") == len(names[1::2])
    torch.save({"epoch": 3, "model": state}, tmp_path / "net.pt")
    assert not fs.diff(net, tmp_path / "net.pt").remarks
    with pytest.raises(fs.InputError):
        fs.diff(tmp_path / "none", tmp_path / "one")
    (tmp_path / "bad.safetensors").write_bytes(b"nothing")
    with pytest.raises(fs.InputError):
        fs.diff(tmp_path / "bad.safetensors", tmp_path / "one")


@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize("zero", [0, 3])
def test_grids(bits, zero):
    rng = np.random.default_rng(bits)
    for step in (0.1, 2.0**-7, 0.0123):
        codes = rng.integers(0, 2**bits, 500)
        codes[:2] = 0, 2**bits - 1
        found = find_grid(step * (codes - zero), DOUBLE)
        assert found.step == step and found.zero == zero and found.levels == 2**bits and found.bits == bits
        stored = (np.float32(step) * (codes - zero).astype(np.float32)).astype(np.float64)
        assert find_grid(stored, ROUNDINGS["float32"]).levels == 2**bits
    assert find_grid(rng.normal(size=500), DOUBLE) is None
    assert find_grid(rng.normal(size=500).astype(np.float32).astype(np.float64), ROUNDINGS["float32"]) is None
    assert find_grid(np.array([1.0, np.nan, 2.0, 3.0, 4.0]), DOUBLE) is None


def test_the_command(tmp_path):
    net = model()
    other = folded(net)
    paths = [str(tmp_path / name) for name in ("a.onnx", "b.onnx", "c.onnx")]
    fs.save(fs.load(net, SHAPE), paths[0])
    fs.save(fs.load(other, SHAPE), paths[1])
    with torch.no_grad():
        other[8].weight[0, 0] += 1
    fs.save(fs.load(other, SHAPE), paths[2])
    run = CliRunner().invoke(app, ["diff", paths[0], paths[1]])
    assert run.exit_code == 0 and "nothing changed" in run.output
    picture = tmp_path / "p.png"
    run = CliRunner().invoke(app, ["diff", paths[0], paths[2], "--json", "--plot", str(picture)])
    told = json.loads(run.output)
    assert run.exit_code == 1 and told["same"] is False and told["layers"][-1]["status"] == "changed"
    assert picture.stat().st_size > 1000
    assert CliRunner().invoke(app, ["diff", paths[0], str(tmp_path / "none.onnx")]).exit_code != 0


def test_layers_behind_neurons_that_are_gone_stay_in_their_order():
    """A quarter of the columns of the next layer is gone, and its neurons are found all the same."""
    net = fs.Network.random((8, 16, 16, 16, 4), 0)
    narrow = fs.Network(
        [net.weights[0][:12], net.weights[1][:, :12], *net.weights[2:]], [net.biases[0][:12], *net.biases[1:]]
    )
    found = fs.diff(net, narrow)
    assert found.layers[0].pruned == 4 and found.layers[0].change == 0
    assert found.layers[1].zeroed == 64 and found.layers[1].remarks == "64 numbers set to zero"
    assert [layer.status for layer in found.layers] == ["same", "changed", "same", "same"]
    assert not any(layer.reordered or layer.rescaled or layer.new for layer in found.layers)


def test_small_weights_that_were_set_to_zero_are_counted():
    net = fs.Network.random((4, 9, 3), 1)
    cut = [np.where(np.abs(w) < 0.2, 0.0, w) for w in net.weights]
    found = fs.diff(net, fs.Network(cut, net.biases))
    assert [layer.zeroed for layer in found.layers] == [int((w == 0).sum()) for w in cut]
    assert fs.diff(*({"w": ws[0]} for ws in (net.weights, cut))).layers[0].zeroed == int((cut[0] == 0).sum())


def test_a_bias_that_changed_is_not_called_reordered():
    """Single numbers come nearer whenever they are sorted, which says nothing."""
    bias = np.random.default_rng(0).normal(size=16)
    other = bias.copy()
    other[3] = 0.0
    assert fs.diff({"b": bias}, {"b": other}).layers[0].reordered == 0
    assert fs.diff({"b": bias}, {"b": bias[::-1].copy()}).layers[0].reordered == 16


def test_tensors_beside_a_program_are_refused_by_the_name_of_what_is_wrong(tmp_path):
    fs.save(fs.Network.random((3, 4, 2), 0), tmp_path / "net.onnx")
    torch.save(model().state_dict(), tmp_path / "state.pt")
    (tmp_path / "notes.txt").write_text("no model")
    shards = tmp_path / "shards"
    shards.mkdir()
    save_file({"w": torch.zeros(2, 2)}, shards / "model.safetensors")
    for a, b, word in (
        (shards, tmp_path / "net.onnx", "shards: expected two programs or two sets of tensors"),
        (tmp_path / "net.onnx", shards, "shards: expected two programs or two sets of tensors"),
        (tmp_path / "state.pt", tmp_path / "notes.txt", "notes.txt: expected a file ending in"),
        (tmp_path / "state.pt", tmp_path / "net.onnx", "state.pt: the file holds numbers and no architecture"),
    ):
        with pytest.raises(fs.InputError, match=word):
            fs.diff(a, b)
