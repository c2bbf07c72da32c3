"""The design proven on real cases: public benchmark files, a CNN with batch norm and max pooling, a residual CNN."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from fiberscope.errors import InputError
from fiberscope.network.comparison import identical
from fiberscope.network.convolutions import Convolution
from fiberscope.network.io import load, save
from fiberscope.network.nodes import Add, Affine, MaxPool, PiecewiseLinear
from fiberscope.network.operators import Dense, Scale
from fiberscope.network.to_torch import to_torch

ort = pytest.importorskip("onnxruntime")

FILES = (
    "acasxu_1_1",
    "acasxu_1_1_perturbed",
    "acasxu_1_2",
    "acasxu_2_2",
    "cartpole",
    "gcas",
    "heloc",
    "heloc_2e5",
    "lunarlander",
    "mnist8x8_a",
    "mnist8x8_b",
    "mnist_256x2",
    "mnist_256x4",
    "mnist_256x4_split",
    "tll_8_0",
    "vdp",
)
FLOAT32 = 1e-5
"""Unit roundoff of float32 is 6e-8; layers and sums in a row cost two digits."""


def run(path: Path, X: np.ndarray) -> np.ndarray:
    """onnxruntime, point by point, since some files fix the batch to one."""
    session = ort.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    (name,) = (value.name for value in session.get_inputs())
    return np.stack([session.run(None, {name: x[None].astype(np.float32)})[0].reshape(-1) for x in X])


def far(got: np.ndarray, want: np.ndarray) -> float:
    """The largest difference, relative to the largest output."""
    return float(np.abs(got - want).max() / np.abs(want).max())


def test_the_folder_has_the_files(shared_nets: Path) -> None:
    """It may grow; what is listed here must be there."""
    assert set(FILES) <= {path.stem for path in shared_nets.glob("*.onnx")}


@pytest.mark.parametrize("name", FILES)
def test_real_files_agree_with_onnxruntime(name: str, shared_nets: Path, tmp_path: Path) -> None:
    path = shared_nets / f"{name}.onnx"
    net = load(path)
    X = np.random.default_rng(0).normal(size=(25, *net.input_shape)).astype(np.float32).astype(np.float64)
    want, got = run(path, X), net(X)
    assert far(got, want) < FLOAT32
    for ending in ("onnx", "npz"):
        again = tmp_path / f"net.{ending}"
        save(net, again)
        assert identical(load(again), net)
    assert far(run(tmp_path / "net.onnx", X), want) < FLOAT32
    module = to_torch(net)
    with torch.no_grad():
        assert far(module(torch.from_numpy(X)).numpy(), got) < 1e-12


def test_the_comparison_sees_a_small_change(shared_nets: Path) -> None:
    net = load(shared_nets / "acasxu_1_1_perturbed.onnx")
    X = np.random.default_rng(0).normal(size=(25, 1, 1, 5)).astype(np.float32).astype(np.float64)
    assert far(net(X), run(shared_nets / "acasxu_1_1.onnx", X)) > 10 * FLOAT32


def test_the_readme_of_the_folder_is_refused(shared_nets: Path) -> None:
    with pytest.raises(InputError, match=r"expected a file ending in .*, got '\.md'"):
        load(shared_nets / "README.md")


def test_acas_xu(shared_nets: Path) -> None:
    """A mean is subtracted first, a constant of the model; then six hidden layers of 50."""
    net = load(shared_nets / "acasxu_1_1.onnx")
    first = net.nodes[0]
    assert net.input_shape == (1, 1, 5) and net.num_hidden == 300 and net.num_parameters == 13305
    assert isinstance(first, Affine) and isinstance(first.operator, Scale) and first.weight_name is None
    assert [type(n) for n in net.nodes[1:]] == [Affine, PiecewiseLinear] * 6 + [Affine]


def test_tll(shared_nets: Path) -> None:
    """Fourteen affine maps, many in a row, kept apart; zero rows and coincident neurons; biases shared by name."""
    net = load(shared_nets / "tll_8_0.onnx")
    affine = [n for n in net.nodes if isinstance(n, Affine)]
    assert len(affine) == 14 and all(isinstance(n.operator, Dense) for n in affine)
    assert net.num_hidden == 252
    signs = net.signs(np.random.default_rng(0).uniform(-2, 2, (4, 2)))
    assert len(signs.zeros) > 0  # exact zeros, proven


# -- torch: a CNN with batch norm and max pooling, a residual CNN --------------------------------------------------


class Cnn(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 6, 5, padding=2),
            nn.BatchNorm2d(6),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(6, 8, 3, stride=2),
            nn.BatchNorm2d(8),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(3, stride=2, padding=1),
        )
        self.head = nn.Sequential(nn.Dropout(), nn.Linear(8 * 2 * 2, 12), nn.ReLU(), nn.Linear(12, 10))

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.features(x).flatten(1))


class BasicBlock(nn.Module):
    def __init__(self, inside: int, out: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inside, out, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(out)
        self.conv2 = nn.Conv2d(out, out, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(out)
        self.relu = nn.ReLU(inplace=True)
        self.downsample: nn.Module = nn.Identity()
        if stride > 1 or inside != out:
            self.downsample = nn.Sequential(nn.Conv2d(inside, out, 1, stride, bias=False), nn.BatchNorm2d(out))

    def forward(self, x: Tensor) -> Tensor:
        identity = self.downsample(x)
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        out += identity
        return self.relu(out)


class ResNet(nn.Module):
    """The usual residual network in small: stem, four blocks, global mean, dense layer."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 4, 3, 1, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(4)
        self.layer1 = nn.Sequential(BasicBlock(4, 4, 1), BasicBlock(4, 4, 1))
        self.layer2 = nn.Sequential(BasicBlock(4, 8, 2), BasicBlock(8, 8, 1))
        self.avgpool = nn.AdaptiveAvgPool2d((1, 1))
        self.fc = nn.Linear(8, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.bn1(self.conv1(x)))
        x = self.avgpool(self.layer2(self.layer1(x)))
        return self.fc(torch.flatten(x, 1))


def trained(module: nn.Module, shape: tuple[int, ...]) -> nn.Module:
    """A few training steps, so that the statistics of batch normalisation are those of data."""
    generator = torch.Generator().manual_seed(0)
    optimizer = torch.optim.SGD(module.parameters(), 0.05)
    for _ in range(5):
        x = torch.randn(16, *shape, generator=generator)
        y = torch.randint(10, (16,), generator=generator)
        optimizer.zero_grad()
        nn.functional.cross_entropy(module(x), y).backward()
        optimizer.step()
    return module


MODELS = {"cnn": (Cnn, (1, 14, 14)), "resnet": (ResNet, (3, 8, 8))}


@pytest.mark.parametrize("name", MODELS)
def test_real_cnns(name: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    kind, shape = MODELS[name]
    module = trained(kind(), shape)
    net = load(module, shape)
    assert module.training

    # torch in float64 agrees to twelve digits
    X = np.random.default_rng(1).normal(size=(6, *shape)).astype(np.float32).astype(np.float64)
    module = module.double().eval()
    with torch.no_grad():
        want = module(torch.from_numpy(X)).numpy()
    np.testing.assert_allclose(net(X), want, rtol=1e-12, atol=1e-12 * np.abs(want).max())

    # names and numbers are the model's own, each once
    assert set(net.parameters) == {n for n, _ in module.named_parameters()}
    assert net.num_parameters == sum(p.numel() for p in module.parameters())

    # onnxruntime agrees with our export to float32 accuracy, and the exact export comes back bit for bit
    save(net, tmp_path / "net.onnx", dtype="float32")
    np.testing.assert_allclose(run(tmp_path / "net.onnx", X), want, rtol=1e-3, atol=1e-5 * np.abs(want).max())
    for ending in ("onnx", "safetensors", "pt", "npz"):
        save(net, tmp_path / f"exact.{ending}")
        assert identical(load(tmp_path / f"exact.{ending}"), net)

    # and back to torch
    with torch.no_grad():
        np.testing.assert_allclose(to_torch(net)(torch.from_numpy(X)).numpy(), want, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("name", MODELS)
def test_certified_signs_of_cnns_agree_with_torch(name: str) -> None:
    torch.manual_seed(0)
    kind, shape = MODELS[name]
    module = trained(kind(), shape).double().eval()
    net = load(module, shape)
    X = np.random.default_rng(2).normal(size=(2, *shape))
    seen: list[np.ndarray] = []

    def watch(_: nn.Module, args: tuple[Tensor, ...]) -> None:
        seen.append(args[0].detach().numpy().reshape(len(X), -1).copy())

    for part in module.modules():
        if isinstance(part, nn.ReLU):
            part.register_forward_pre_hook(watch)
    if isinstance(module, ResNet):
        module.bn1.register_forward_hook(lambda m, args, out: watch(m, (out,)))
    with torch.no_grad():
        module(torch.from_numpy(X))
    certified = net.signs(X)
    assert certified.by_exact == 0 and certified.by_float > 0.99 * certified.signs.size
    start, found = 0, []
    for node in net.switches:
        if isinstance(node, PiecewiseLinear):
            found.append(certified.signs[:, start : start + node.num_signs])
        start += node.num_signs
    for ours, theirs in zip(found, seen, strict=True):
        np.testing.assert_array_equal(ours, np.sign(theirs))


def test_the_structure_of_the_cnns() -> None:
    cnn = load(Cnn(), (1, 14, 14))
    assert sum(isinstance(n, MaxPool) for n in cnn.nodes) == 2
    assert sum(isinstance(n, Affine) and isinstance(n.operator, Convolution) for n in cnn.nodes) == 2
    resnet = load(ResNet(), (3, 8, 8))
    assert sum(isinstance(n, Add) for n in resnet.nodes) == 4
    assert "layer2.0.downsample.0.weight" in resnet.parameters


def test_an_affine_piece_of_a_cnn_is_its_gradient() -> None:
    torch.manual_seed(0)
    module = trained(Cnn(), (1, 14, 14)).double().eval()
    net = load(module, (1, 14, 14))
    x = np.random.default_rng(3).normal(size=196)
    matrix, offset = net.affine_at(x)
    jacobian = torch.autograd.functional.jacobian(module, torch.from_numpy(x.reshape(1, 1, 14, 14)))
    np.testing.assert_allclose(matrix, jacobian.reshape(10, 196).numpy(), rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(matrix @ x + offset, net(x[None])[0], rtol=1e-10)
