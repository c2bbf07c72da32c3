"""Moments of layers against all samples at once, hooks that leave no trace, and memory that does not grow."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from fiberscope.errors import InputError, UnsupportedModelError
from fiberscope.modules.batches import batches
from fiberscope.modules.models import mlp, resnet20, vit
from fiberscope.modules.recording import activation_shapes, cross_moments, record_activations, record_inputs
from fiberscope.neurons.asymmetry import break_symmetry


def samples(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape)


def traces(net: nn.Module) -> list[Any]:
    """All that hooks could leave behind."""
    keys = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_forward_hooks_with_kwargs")
    return [(part.training, *(len(getattr(part, key)) for key in keys)) for part in net.modules()]


def assert_moments(found: Any, rows: np.ndarray) -> None:
    assert found.count == len(rows)
    np.testing.assert_allclose(found.mean, rows.mean(axis=0), rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(found.second_moment, rows.T @ rows / len(rows), rtol=1e-6, atol=1e-6)
    assert np.array_equal(found.second_moment, found.second_moment.T)
    assert found.non_negative == bool((rows >= 0).all())


@settings(max_examples=20, deadline=None)
@given(st.integers(1, 40), st.integers(1, 40), st.booleans())
def test_linear_inputs(points: int, size: int, bias: bool) -> None:
    net = mlp((5, 4, 3, 2), activation=nn.ReLU).double()
    X = samples(points, 5)
    found = record_inputs(net, None, X, bias=bias, batch_size=size)
    assert list(found) == ["linear0", "linear1", "linear2"]
    hidden = torch.as_tensor(X)
    for name, part in net.named_children():
        if name.startswith("linear"):
            rows = hidden.detach().numpy()
            assert_moments(found[name], np.hstack([rows, np.ones((points, 1))]) if bias else rows)
        hidden = part(hidden)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"padding": 1},
        {"padding": (2, 1), "stride": (1, 2)},
        {"padding": "same", "dilation": 2},
        {"padding": "same", "kernel_size": (2, 4)},
        {"padding": "valid"},
        {"padding": 1, "padding_mode": "reflect"},
        {"padding": (1, 2), "padding_mode": "circular"},
    ],
)
def test_a_row_of_a_convolution_sees_its_patch(options: dict[str, Any]) -> None:
    """``E[w . patch]`` and ``E[(w . patch)^2]`` are the moments of the outputs, computed by torch's own convolution."""
    layer = nn.Conv2d(3, 4, **({"kernel_size": 3} | options), bias=False).double()
    X = samples(5, 3, 7, 8)
    found = record_inputs(nn.Sequential(layer), ["0"], X, batch_size=2)["0"]
    W = layer.weight.detach().reshape(4, -1).numpy()
    outputs = layer(torch.as_tensor(X)).detach().movedim(1, -1).reshape(-1, 4).numpy()
    assert found.count == len(outputs)
    np.testing.assert_allclose(W @ found.mean, outputs.mean(axis=0), atol=1e-12)
    np.testing.assert_allclose(W @ found.second_moment @ W.T, outputs.T @ outputs / len(outputs), atol=1e-12)


def test_chunks_do_not_change_the_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    net, X = resnet20(1, blocks=1).double(), samples(4, 3, 8, 8)
    whole = record_inputs(net, None, X)
    monkeypatch.setattr("fiberscope.modules.recording.ROWS_BYTES", 1)
    for name, found in record_inputs(net, None, X).items():
        np.testing.assert_allclose(found.second_moment, whole[name].second_moment, rtol=1e-12, atol=1e-15)
        assert found.count == whole[name].count


def test_activations_pixels_and_tokens_are_samples() -> None:
    net = resnet20(1, blocks=1)
    X = samples(4, 3, 8, 8).astype(np.float32)
    found = record_activations(net, ["conv", "linear"], X, batch_size=3)
    with torch.no_grad():
        pixels = net.conv(torch.as_tensor(X)).movedim(1, -1).reshape(-1, 16).double().numpy()  # type: ignore[operator]
    assert_moments(found["conv"], pixels)
    assert found["linear"].count == 4
    transformer = vit(16, depth=1, heads=2, image=8)
    tokens = record_inputs(transformer, ["blocks.0.linear1", "head"], X)
    assert (tokens["blocks.0.linear1"].count, tokens["head"].count) == (4 * 5, 4)


def test_attention_as_a_layer() -> None:
    net = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
    net.train()
    X = samples(2, 4, 8)
    assert record_inputs(net, "self_attn", X)["self_attn"].count == 8
    with pytest.raises(InputError, match=r"layer self_attn\.out_proj: it was never run"):
        record_inputs(net, "self_attn.out_proj", X)


# -- traces ------------------------------------------------------------------------------------------------------------


class Breaks(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        raise RuntimeError("on purpose")


def test_hooks_leave_no_trace() -> None:
    net = mlp((4, 3, 2), norm="batch")
    net.train()
    net.norm0.eval()  # type: ignore[operator, union-attr]
    own = net.linear0.register_forward_hook(lambda *_: None)  # type: ignore[operator, union-attr]
    before, state = traces(net), {k: v.clone() for k, v in net.state_dict().items()}
    record_inputs(net, None, samples(6, 4))
    record_activations(net, ["act0"], samples(6, 4))
    cross_moments(net, net, ["act0"], samples(6, 4))
    activation_shapes(net, ["act0"], samples(6, 4))
    assert traces(net) == before
    assert all(torch.equal(value, state[name]) for name, value in net.state_dict().items())
    assert all(p.grad is None for p in net.parameters())
    own.remove()


@pytest.mark.parametrize("call", [record_inputs, record_activations])
def test_hooks_go_away_when_something_breaks(call: Any) -> None:
    net = nn.Sequential(nn.Linear(4, 3), Breaks())
    before = traces(net)
    with pytest.raises(InputError, match="on purpose"):
        call(net, ["0"], samples(6, 4))
    with pytest.raises(InputError, match="on purpose"):
        cross_moments(net, net, ["0"], samples(6, 4))
    assert traces(net) == before

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    net = mlp((4, 3, 2))
    before = traces(net)
    with pytest.raises(KeyboardInterrupt):
        call(net, ["linear0"], samples(6, 4), progress=interrupt)
    assert traces(net) == before


def test_never_run_and_unknown_layers_are_named() -> None:
    class Idle(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.used, self.idle = nn.Linear(4, 2), nn.Linear(4, 2)

        def forward(self, x: Tensor) -> Tensor:
            result: Tensor = self.used(x)
            return result

    for call in (record_inputs, record_activations):
        with pytest.raises(InputError, match="layer idle: it was never run"):
            call(Idle(), None if call is record_inputs else ["idle"], samples(3, 4))
        with pytest.raises(InputError, match="layer x: the module has no such layer; its first are used, idle"):
            call(Idle(), ["x"], samples(3, 4))
    with pytest.raises(InputError, match="layer idle: it was never run"):
        cross_moments(Idle(), Idle(), ["idle"], samples(3, 4))
    with pytest.raises(UnsupportedModelError, match="layer 0: a grouped convolution"):
        record_inputs(nn.Sequential(nn.Conv2d(2, 2, 1, groups=2)), None, samples(1, 2, 3, 3))
    with pytest.raises(InputError, match="at least one layer"):
        record_inputs(nn.ReLU(), None, samples(1, 2))


def test_layers_that_write_into_their_input() -> None:
    """The samples are those before an activation in place, for every kind of recording."""
    in_place = nn.Sequential(nn.Linear(3, 4), nn.ReLU(inplace=True), nn.Linear(4, 2)).double()
    plain = nn.Sequential(in_place[0], nn.ReLU(), in_place[2])
    X = samples(20, 3)
    for call, layer in ((record_activations, "0"), (record_inputs, "1")):
        one, two = (call(net, [layer], X)[layer] for net in (in_place, plain))  # type: ignore[operator]
        assert np.array_equal(one.second_moment, two.second_moment) and not one.non_negative
    for inputs, layer in ((False, "0"), (True, "1")):
        left, right = (cross_moments(net, net, [layer], X, inputs=inputs)[layer] for net in (in_place, plain))
        assert np.array_equal(left.covariance, right.covariance)


# -- two modules -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 7, 50])
def test_correlation_of_features_that_hardly_vary(size: int) -> None:
    """About 3 with a deviation of 1e-9: sums about zero would leave no digit of it."""
    a, b = nn.Sequential(nn.Linear(5, 6)).double(), nn.Sequential(nn.Linear(5, 6)).double()
    X = 3.0 + 1e-9 * samples(50, 5)
    found = cross_moments(a, b, ["0"], X, batch_size=size)["0"]
    left, right = (net(torch.as_tensor(X)).detach().numpy() for net in (a, b))
    np.testing.assert_allclose(found.correlation, np.corrcoef(left.T, right.T)[:6, 6:], atol=1e-5)
    assert not any(part.any() for part in found.constant)


def test_correlation_is_numpys() -> None:
    a, b = mlp((5, 6, 3), 0).double(), mlp((5, 6, 3), 1).double()
    X = samples(50, 5) + 3.0
    found = cross_moments(a, b, ["act0"], X, batch_size=7)["act0"]
    left, right = (net[:4](torch.as_tensor(X)).detach().numpy() for net in (a, b))
    np.testing.assert_allclose(found.correlation, np.corrcoef(left.T, right.T)[:6, 6:], atol=1e-10)
    pooled = cross_moments(a, b, {"both": ("act0", "norm0")}, X)["both"]
    assert pooled.count == 100


def test_correlation_keeps_its_sign_and_constants_have_none() -> None:
    a = nn.Sequential(nn.Linear(1, 3, bias=True))
    with torch.no_grad():
        a[0].weight.copy_(torch.tensor([[1.0], [-1.0], [0.0]]))
        a[0].bias.copy_(torch.tensor([0.0, 0.0, 0.1]))
    found = cross_moments(a, a, ["0"], samples(1000, 1))["0"]
    np.testing.assert_allclose(found.correlation, [[1, -1, 0], [-1, 1, 0], [0, 0, 0]], atol=1e-6)
    assert [part.tolist() for part in found.constant] == [[False, False, True]] * 2


def test_symmetry_broken_modules_are_recorded() -> None:
    net = break_symmetry(mlp((5, 4, 2)), "w", 0)
    assert list(record_inputs(net, None, samples(5, 5))) == ["linear0", "linear1"]


# -- data --------------------------------------------------------------------------------------------------------------


def test_forms_of_data() -> None:
    X, y = samples(7, 2), np.arange(7)

    class Data:
        inputs, targets = X, y

    loader = torch.utils.data.DataLoader(
        torch.utils.data.TensorDataset(torch.as_tensor(X), torch.as_tensor(y)), batch_size=3
    )
    for data in (
        (X, y),
        Data(),
        loader,
        [(X[:3], y[:3]), (X[3:], y[3:])],
        ((X[i : i + 1], y[i : i + 1]) for i in range(7)),
    ):
        parts = list(batches(data, size=4))
        assert np.array_equal(np.concatenate([x.numpy() for x, _ in parts]), X)
        assert np.array_equal(np.concatenate([t.numpy() for _, t in parts if t is not None]), y)
    assert [t for _, t in batches(X, size=5)] == [None, None]
    assert next(batches(X, mlp((2, 2))))[0].dtype == torch.float32


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (np.zeros((0, 2)), "at least one point"),
        ([], "at least one point"),
        ((np.zeros((2, 2)), np.zeros(3)), r"as many inputs as targets, got inputs \(2, 2\), targets \(3,\)"),
        ("text", "got str"),
        (3, "got int"),
        ([3], "of arrays, got int"),
        (np.zeros((2, 2), dtype=np.uint8), "got uint8"),
    ],
)
def test_bad_data(data: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        list(batches(data, mlp((2, 2))))
    with pytest.raises(InputError, match="batch_size"):
        list(batches(np.zeros((2, 2)), size=0))


PEAK = """
import numpy as np, torch
from fiberscope.modules.models import mlp
from fiberscope.modules.recording import record_inputs
net = mlp((784, 512, 10))
def data():
    rng = np.random.default_rng(0)
    for _ in range(100):
        yield rng.normal(size=(500, 784)).astype(np.float32)
def most():
    return int(open("/proc/self/status").read().partition("VmHWM:")[2].split()[0])
record_inputs(net, ["linear0"], [next(data())])
before = most()
found = record_inputs(net, ["linear0"], data())["linear0"]
values, vectors = np.linalg.eigh(found.second_moment)
assert found.count == 50_000
peak = most()
print((peak - before) / 1024, peak / 1024)
"""


def test_arrays_that_run_backwards() -> None:
    x = np.arange(6, dtype=np.float32).reshape(3, 2)
    assert torch.equal(next(batches(x[::-1]))[0], torch.from_numpy(x).flip(0))


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="peak memory is read from Linux's /proc")
def test_streaming_pca_in_bounded_memory() -> None:
    """The peak of the new program itself: ``ru_maxrss`` is inherited from the process that started it."""
    done = subprocess.run([sys.executable, "-c", PEAK], capture_output=True, text=True, timeout=300, check=True)
    growth, peak = map(float, done.stdout.split())
    assert growth < 200 and peak < 800, (growth, peak)
