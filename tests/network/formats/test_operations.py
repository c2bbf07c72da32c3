"""Operations that move, resize, add up or bend: torch, its ONNX exporters, onnxruntime and every format agree."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import (
    MaxAbsScaler,
    MinMaxScaler,
    PolynomialFeatures,
    RobustScaler,
    StandardScaler,
)
from torch import Tensor, nn
from torch.nn import functional as F

from fiberscope.dimension.functional import functional_dimension
from fiberscope.dimension.jacobian import jacobian
from fiberscope.errors import InputError, TooLargeError, UnsupportedModelError
from fiberscope.fibers.fiber import fiber
from fiberscope.geometry.domains import Plane
from fiberscope.geometry.regions import count_regions
from fiberscope.network.comparison import identical
from fiberscope.network.io import load, save
from fiberscope.network.network import Network
from fiberscope.network.nodes import Affine, PiecewiseLinear
from fiberscope.network.operators import Gather, Sparse
from fiberscope.testing import fraction_map, fraction_regions

ort = pytest.importorskip("onnxruntime")

IMAGE, SIGNAL, VECTOR = (4, 3, 5), (4, 7), (6,)


class Function(nn.Module):
    """A function of a tensor as a module, behind an optional layer."""

    def __init__(self, function: Callable[[Tensor], Tensor], layer: nn.Module | None = None) -> None:
        super().__init__()
        self.function, self.layer = function, nn.Identity() if layer is None else layer

    def forward(self, x: Tensor) -> Tensor:
        return self.function(self.layer(x))


def fn(function: Callable[[Any], Any], shape: tuple[int, ...] = IMAGE) -> tuple[Callable[[], nn.Module], Any]:
    return lambda: Function(function), shape


def layer(make: Callable[[], nn.Module], shape: tuple[int, ...] = IMAGE) -> tuple[Callable[[], nn.Module], Any]:
    return make, shape


OPERATIONS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "conv_transpose": layer(lambda: nn.ConvTranspose2d(4, 6, (3, 2), (2, 3), (1, 0), (1, 2), 2, dilation=(1, 2))),
    "conv_transpose_plain": layer(lambda: nn.ConvTranspose2d(4, 2, 2, bias=False)),
    "conv_transpose_dilated": layer(lambda: nn.ConvTranspose2d(4, 2, 2, 1, 0, 1, dilation=2)),
    "conv_transpose_1d": layer(lambda: nn.ConvTranspose1d(4, 2, 3, 2, 1, 1), SIGNAL),
    "conv_1d": layer(lambda: nn.Conv1d(4, 2, 3, 2, 1, padding_mode="circular"), SIGNAL),
    "conv_reflect": layer(lambda: nn.Conv2d(4, 2, 3, padding=(1, 2), padding_mode="reflect")),
    "conv_replicate_same": layer(lambda: nn.Conv2d(4, 2, (2, 3), padding="same", padding_mode="replicate")),
    "pad": fn(lambda x: F.pad(x, (1, 2, 0, 1))),
    "pad_cuts": fn(lambda x: F.pad(x, (-1, 2, 1, -1, 0, 1))),
    "pad_constant": fn(lambda x: F.pad(x, (0, 2), value=0.5)),
    "pad_reflect": layer(lambda: nn.ReflectionPad2d((2, 1, 0, 2))),
    "pad_replicate": layer(lambda: nn.ReplicationPad2d((3, 0, 1, 1))),
    "pad_circular": layer(lambda: nn.CircularPad2d((1, 2, 0, 1))),
    "pad_1d": layer(lambda: nn.Sequential(nn.ZeroPad1d(1), nn.ReflectionPad1d(2), nn.ConstantPad1d(1, -2.0)), SIGNAL),
    "slice": fn(lambda x: x[:, 1:3, ::2, -2:]),
    "slice_ellipsis": fn(lambda x: x[..., 1] + x[:, :, 0, None, 2]),
    "slice_last": fn(lambda x: x[:, -1].unsqueeze(1)),
    "index_list": fn(lambda x: x[:, [2, 0, 0]]),
    "narrow": fn(lambda x: x.narrow(1, 1, 2).select(2, 1)),
    "split": fn(lambda x: torch.split(x, [1, 3], 1)[1] - x.split(3, dim=1)[0]),
    "chunk": fn(
        lambda x: torch.cat([x.chunk(2, 1)[1], x.chunk(3, dim=-1)[0].relu().repeat(1, 1, 1, 3)[..., :5][:, :2]], 1)
    ),
    "unbind": fn(lambda x: x.unbind(1)[2] + 2 * x.unbind(1)[0]),
    "stack": fn(lambda x: torch.stack([x[:, 0], x[:, 1], x[:, 0]], 2)),
    "transpose": fn(lambda x: x.transpose(1, 3).relu()),
    "permute": fn(lambda x: x.permute(0, 2, 3, 1).flatten(1)),
    "movedim": fn(lambda x: torch.movedim(x, 1, -1).mT),
    "squeeze": fn(lambda x: x.sum(1, keepdim=True).squeeze(1).unsqueeze(-1)),
    "flip_roll": fn(lambda x: x.flip(2, 3) + torch.roll(x, (1, -2), (1, 3))),
    "expand_repeat": fn(lambda x: x.mean(1, keepdim=True).expand(-1, 3, -1, -1) + x.repeat(1, 3, 1, 1)[:, 2:5]),
    "pixel_shuffle": layer(lambda: nn.PixelShuffle(2), (8, 2, 3)),
    "pixel_unshuffle": layer(lambda: nn.PixelUnshuffle(2), (2, 4, 6)),
    "channel_shuffle": layer(lambda: nn.ChannelShuffle(2)),
    "nearest": layer(lambda: nn.Upsample(scale_factor=2)),
    "nearest_size": fn(lambda x: F.interpolate(x, size=(7, 8))),
    "nearest_factors": fn(lambda x: F.interpolate(x, scale_factor=(1.7, 0.6))),
    "nearest_exact": fn(lambda x: F.interpolate(x, scale_factor=1.5, mode="nearest-exact")),
    "nearest_1d": fn(lambda x: F.interpolate(x, scale_factor=3), SIGNAL),
    "bilinear": layer(lambda: nn.Upsample(scale_factor=2, mode="bilinear")),
    "bilinear_corners": layer(lambda: nn.UpsamplingBilinear2d(size=(5, 9))),
    "bilinear_size": fn(lambda x: F.interpolate(x, size=(2, 11), mode="bilinear")),
    "bilinear_factors": fn(lambda x: F.interpolate(x, scale_factor=(1.7, 2.3), mode="bilinear")),
    "bilinear_recomputed": fn(
        lambda x: F.interpolate(x, scale_factor=1.7, mode="bilinear", recompute_scale_factor=True)
    ),
    "linear": fn(lambda x: F.interpolate(x, scale_factor=2, mode="linear"), SIGNAL),
    "area": fn(lambda x: F.interpolate(x, size=(2, 3), mode="area")),
    "mean": fn(lambda x: torch.cat([x.mean((2, 3)), x.mean((1, -1)), x.mean(1).mean(1)], 1)),
    "sum": fn(lambda x: x.sum((1, 3), keepdim=True) + torch.sum(x, -1)[:, :2, :, None]),
    "adaptive": layer(lambda: nn.AdaptiveAvgPool2d((2, 3))),
    "adaptive_1d": layer(lambda: nn.AdaptiveAvgPool1d(3), SIGNAL),
    "adaptive_max": layer(lambda: nn.AdaptiveMaxPool2d((3, 1))),
    "abs": fn(lambda x: abs(x - 1).abs() - torch.abs(x)),
    "relu6": layer(nn.ReLU6),
    "hardtanh": layer(lambda: nn.Sequential(nn.Hardtanh(-0.5, 0.25), nn.ReLU())),
    "hardsigmoid": layer(lambda: nn.Sequential(nn.Hardsigmoid(), nn.Softshrink(0.4))),
    "clamp": fn(lambda x: x.clamp(-0.5, 0.3) + torch.clamp(x, max=1.0) - F.hardtanh(x).clip(min=0)),
    "clamp_arrays": fn(lambda x: torch.clamp(x, torch.linspace(-1, 0.4, 5), torch.linspace(0.5, 2, 3)[:, None])),
    "clamp_crossed": fn(lambda x: x.clamp(0.5, -0.5) + x),
    "maximum": fn(lambda x: torch.maximum(x, 2 * x.flip(3)) + torch.minimum(x, 1 - x)),
    "maximum_broadcast": fn(lambda x: torch.max(x, x.mean(1, keepdim=True)) - torch.min(x[:, :1], x)),
    "maximum_constant": fn(lambda x: torch.maximum(x, torch.tensor(0.3)) + torch.minimum(torch.tensor(0.5), x)),
    "amax": fn(
        lambda x: x.amax(1) + x.amin((1, 3), keepdim=True)[:, 0] - x.max(1)[0] + x.min(dim=1, keepdim=True).values[:, 0]
    ),
    "adaptive_max_uneven": layer(lambda: nn.AdaptiveMaxPool2d((2, 3))),
    "adaptive_max_1d": layer(lambda: nn.AdaptiveMaxPool1d(3), SIGNAL),
    "prelu": layer(lambda: nn.PReLU(4)),
    "prelu_shared": layer(lambda: nn.Sequential(nn.PReLU(), nn.LeakyReLU(0.3))),
    "rrelu": layer(nn.RReLU),
    "arithmetic": fn(lambda x: (2 - x) / 4 + -x * 3 - (x + x).to(x.device).double()),
}


def made(name: str) -> tuple[nn.Module, tuple[int, ...]]:
    make, shape = OPERATIONS[name]
    torch.manual_seed(len(name))
    module = make().eval()
    for parameter in module.parameters():
        nn.init.normal_(parameter)
    return module, shape


@pytest.mark.parametrize("name", OPERATIONS)
def test_torch_and_every_format_agree(name: str, tmp_path: Path) -> None:
    module, shape = made(name)
    net = load(module, shape)
    X = np.random.default_rng(0).normal(size=(3, *shape))
    with torch.no_grad():
        want = module.double()(torch.from_numpy(X))
    close = {"rtol": 1e-11, "atol": 1e-12}
    np.testing.assert_allclose(net(X), want.numpy().reshape(3, -1), **close)
    np.testing.assert_allclose(net(X[:1]), want.numpy().reshape(3, -1)[:1], **close)
    with torch.no_grad():
        np.testing.assert_allclose(net.to_torch()(torch.from_numpy(X)).numpy(), net(X), **close)
    for ending in ("npz", "safetensors", "pt", "onnx"):
        save(net, tmp_path / f"net.{ending}")
        assert identical(load(tmp_path / f"net.{ending}"), net), ending
    onnx.checker.check_model(str(tmp_path / "net.onnx"), full_check=True)
    save(net, tmp_path / "single.onnx", dtype="float32")
    if name != "conv_transpose_dilated":  # the runtime refuses an output padding of the size of the stride
        np.testing.assert_allclose(run(tmp_path / "single.onnx", X), net(X), rtol=1e-4, atol=1e-4)


def run(path: Path, X: np.ndarray) -> np.ndarray:
    session = ort.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    (given,) = session.get_inputs()
    (found,) = session.run(None, {given.name: X.astype(np.float32)})
    return np.asarray(found).reshape(len(X), -1)


# -- files of both exporters -------------------------------------------------------------------------------------------


class Decoder(nn.Module):
    """Up: transposed convolutions, pixel shuffle, nearest and bilinear resizing."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.ConvTranspose2d(4, 8, 3, 2, 1, 1, groups=2)
        self.second = nn.ConvTranspose2d(2, 2, (2, 3), 1, dilation=2, bias=False)
        self.slope = nn.PReLU(8)

    def forward(self, x: Tensor) -> Tensor:
        x = F.pixel_shuffle(self.slope(self.first(x)), 2)
        y = F.interpolate(self.second(x), size=(9, 7), mode="bilinear")
        z = F.interpolate(F.interpolate(x, scale_factor=2, mode="bilinear", align_corners=True), size=(9, 7))
        return torch.cat([y, F.interpolate(z[:, :, ::2, 1:], scale_factor=2, mode="nearest")[:, :, :9, :7]], 1)


class Shuffled(nn.Module):
    """Sideways: chunks, slices, transposes, padding of all kinds."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(4, 4, 3, padding=1, padding_mode="reflect")
        self.dense = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        a, b = self.conv(F.pad(x, (1, 0, 2, 1))).chunk(2, 1)
        y = torch.cat([b.abs(), a], 1)
        y = F.pad(F.pad(y, (1, 1, 0, 0), mode="replicate"), (0, 1), value=0.25)
        y = y.view(y.size(0), 2, 2, y.size(2), -1).transpose(1, 2).flatten(1, 2)
        rows = self.dense(y.permute(0, 2, 3, 1)[:, 1:, :, :])
        return rows.flip(1)[:, :, -3:].relu().flatten(1)


class Down(nn.Module):
    """Down: sums, means, pools, unshuffled pixels, arithmetic with constants."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv1d(4, 4, 2)
        self.slope = nn.PReLU()

    def forward(self, x: Tensor) -> Tensor:
        y = F.pixel_unshuffle(F.pad(x, (0, 1, 0, 1)), 2)
        parts = [y.mean((2, 3)), x.sum(3).flatten(1), F.adaptive_avg_pool2d(x, 1).flatten(1), x.mean(1).mean(2)]
        z = self.slope(self.conv(x.mean(2)))
        first, _, last = torch.split(z, [1, 1, 2], 1)
        parts += [first.squeeze(1), (1 - last).abs().flatten(1) / 3, F.leaky_relu(-z, 0.2)[:, 0]]
        return torch.cat(parts, 1)


class Bent(nn.Module):
    """Bounds on one side, on both, of numbers and of arrays; the larger of two, the largest of many."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(4, 4, 2)
        self.register_buffer("bound", torch.linspace(-0.5, 0.25, 4).reshape(4, 1, 1))

    def forward(self, x: Tensor) -> Tensor:
        y = self.conv(x)
        y = F.relu6(y) + F.hardtanh(y, -0.25, 0.5) - F.hardsigmoid(y)
        y = torch.clamp(y, max=0.75) + torch.maximum(y, self.bound) + torch.minimum(y, 2 * y.flip(1))
        y = torch.max(y, y.mean(1, keepdim=True).clamp(min=-0.1))
        return torch.cat([y.amax(1).flatten(1), y.amin((2, 3)), y.max(2)[0].flatten(1)], 1)


EXPORTED: dict[str, Callable[[], nn.Module]] = {"up": Decoder, "sideways": Shuffled, "down": Down, "bent": Bent}


def exported(module: nn.Module, shape: tuple[int, ...], path: Path, dynamo: bool, batch: int | None) -> Path:
    """A file with a batch of a fixed size, or an open one."""
    options: dict[str, Any] = {}
    if batch is None:
        options = {"dynamic_shapes": ({0: "N"},)} if dynamo else {"dynamic_axes": {"x": {0: "N"}}}
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            example = torch.zeros(batch or 2, *shape)
            torch.onnx.export(module, (example,), str(path), dynamo=dynamo, input_names=["x"], verbose=False, **options)
    finally:
        logging.disable(logging.NOTSET)
    return path


@pytest.mark.parametrize("batch", [1, 3, None])
@pytest.mark.parametrize("dynamo", [False, True], ids=["torchscript", "dynamo"])
@pytest.mark.parametrize("name", EXPORTED)
def test_files_of_both_exporters(name: str, dynamo: bool, batch: int | None, tmp_path: Path) -> None:
    torch.manual_seed(0)
    module = EXPORTED[name]().eval()
    path = exported(module, IMAGE, tmp_path / "model.onnx", dynamo, batch)
    net, own = load(path), load(module, IMAGE)
    points = batch or 3
    X = np.random.default_rng(1).normal(size=(points, *IMAGE))
    np.testing.assert_allclose(net(X), run(path, X), rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(net(X), own(X), rtol=1e-4, atol=1e-4)
    save(net, tmp_path / "again.onnx")
    assert identical(load(tmp_path / "again.onnx"), net)
    save(net, tmp_path / "single.onnx", dtype="float32")
    np.testing.assert_allclose(run(tmp_path / "single.onnx", X), run(path, X), rtol=1e-4, atol=1e-4)


# -- graphs that torch does not write ----------------------------------------------------------------------------------


def graph(tmp_path: Path, nodes: list[Any], shape: tuple[Any, ...], constants: dict[str, Any], opset: int = 18) -> Path:
    kinds = {name: np.asarray(array) for name, array in constants.items()}
    kinds = {name: a.astype(np.float32) if a.dtype.kind == "f" else a.astype(np.int64) for name, a in kinds.items()}
    made = helper.make_graph(
        nodes,
        "test",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, None)],
        [onnx.numpy_helper.from_array(a, name) for name, a in kinds.items()],
    )
    path = tmp_path / "graph.onnx"
    onnx.save(helper.make_model(made, opset_imports=[helper.make_opsetid("", opset)], ir_version=9), path)
    return path


def node(kind: str, inputs: str, output: str = "y", **options: Any) -> Any:
    return helper.make_node(kind, inputs.replace("-", "").split(" "), output.split(), f"the_{output}", **options)


KERNEL = np.random.default_rng(5).normal(size=(4, 2, 3, 2))

GRAPHS: dict[str, tuple[list[Any], tuple[Any, ...], dict[str, Any], int]] = {
    "same_upper": (
        [node("ConvTranspose", "x k", auto_pad="SAME_UPPER", strides=[2, 1])],
        ("N", *IMAGE),
        {"k": KERNEL},
        18,
    ),
    "same_lower": (
        [node("ConvTranspose", "x k", auto_pad="SAME_LOWER", strides=[2, 2])],
        ("N", *IMAGE),
        {"k": KERNEL},
        18,
    ),
    "output_shape": (
        [node("ConvTranspose", "x k", output_shape=[6, 10], strides=[2, 2])],
        (1, *IMAGE),
        {"k": KERNEL},
        18,
    ),
    "depth_first": ([node("DepthToSpace", "x", blocksize=2)], ("N", 8, 2, 3), {}, 13),
    "space_to_depth": ([node("SpaceToDepth", "x", blocksize=2)], ("N", 3, 4, 2), {}, 13),
    "pad_axes": ([node("Pad", "x p - a", mode="edge")], ("N", *IMAGE), {"p": [1, 2, 0, -1], "a": [-1, 1]}, 18),
    "pad_old": ([node("Pad", "x", pads=[0, 0, 1, 0, 0, 1, 0, 2], value=1.5)], ("N", *IMAGE), {}, 9),
    "slice_old": ([node("Slice", "x", starts=[1, -2], ends=[3, 100], axes=[1, 3])], ("N", *IMAGE), {}, 9),
    "slice_back": (
        [node("Slice", "x s e a t")],
        ("N", *IMAGE),
        {"s": [-1, 3], "e": [-100, 0], "a": [1, 3], "t": [-1, -2]},
        13,
    ),
    "split_even": (
        [node("Split", "x", "a b", axis=-1, num_outputs=2), node("Concat", "b a", axis=3)],
        ("N", *IMAGE),
        {},
        18,
    ),
    "split_old": ([node("Split", "x", "a b c", axis=1, split=[1, 2, 1]), node("Add", "a c")], ("N", *IMAGE), {}, 11),
    "transpose_column": (
        [node("Transpose", "x", "t"), node("MatMul", "w t")],
        (1, 5),
        {"w": KERNEL[0, :, 0, :1] * np.ones(5)},
        13,
    ),
    "transpose_all": ([node("Transpose", "x")], (1, *IMAGE), {}, 13),
    "squeeze_old": ([node("ReduceSum", "x", "s", axes=[2]), node("Squeeze", "s", axes=[2])], ("N", *IMAGE), {}, 11),
    "reduce_all": ([node("ReduceMean", "x", keepdims=0)], (1, *IMAGE), {}, 13),
    "tile_expand": (
        [node("Tile", "x r", "t"), node("Expand", "t s")],
        ("N", 2, 1),
        {"r": [1, 2, 1], "s": [1, 1, 3]},
        13,
    ),
    "upsample": ([node("Upsample", "x s", mode="nearest")], ("N", *IMAGE), {"s": [1.0, 1.0, 2.0, 3.0]}, 9),
    "upsample_linear": ([node("Upsample", "x s", mode="linear")], ("N", *IMAGE), {"s": [1.0, 1.0, 2.0, 1.5]}, 9),
    "neg_identity": (
        [node("Neg", "x", "a"), node("Identity", "a", "b"), node("Abs", "b", "c"), node("Sum", "a c b")],
        ("N", 5),
        {},
        13,
    ),
    "gather_rows": ([node("Gather", "x i", axis=2)], ("N", *IMAGE), {"i": [[0, -1], [2, 2]]}, 13),
    "gather_scalar": ([node("Gather", "x i", axis=1)], ("N", *IMAGE), {"i": 2}, 13),
    "folded_transpose": (
        [node("Transpose", "w", "v", perm=[1, 0]), node("MatMul", "x v")],
        ("N", 5),
        {"w": KERNEL[0, :, 0, :1] * np.ones(5)},
        13,
    ),
}


@pytest.mark.parametrize("name", GRAPHS)
def test_graphs_agree_with_onnxruntime(name: str, tmp_path: Path) -> None:
    nodes, shape, constants, opset = GRAPHS[name]
    path = graph(tmp_path, nodes, shape, constants, opset)
    net = load(path)
    X = np.random.default_rng(2).normal(size=(1 if shape[0] == 1 else 3, *shape[1:]))
    np.testing.assert_allclose(net(X), run(path, X), rtol=1e-5, atol=1e-5)


COORDINATES = ("half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric")


@given(
    size=st.tuples(st.integers(1, 5), st.integers(1, 6)),
    factors=st.tuples(*[st.sampled_from([0.5, 0.6, 1.0, 1.3, 1.5, 2.0, 2.6, 3.0])] * 2),
    by_size=st.booleans(),
    how=st.sampled_from(COORDINATES),
    mode=st.sampled_from(["linear", "floor", "ceil", "round_prefer_floor", "round_prefer_ceil"]),
)
@settings(max_examples=60)
def test_resizing_agrees_with_onnxruntime(
    size: Any, factors: Any, by_size: bool, how: str, mode: str, tmp_path_factory: Any
) -> None:
    wanted = [int(np.float32(n) * np.float32(f)) for n, f in zip(size, factors, strict=True)]
    if min(wanted) < 1:
        return
    options = {"mode": "linear"} if mode == "linear" else {"mode": "nearest", "nearest_mode": mode}
    constants: dict[str, Any] = {"s": [1, 2, *wanted]} if by_size else {"s": [1.0, 1.0, *factors]}
    inputs = "x - - s" if by_size else "x - s"
    made = node("Resize", inputs, coordinate_transformation_mode=how, **options)
    path = graph(tmp_path_factory.mktemp("resize"), [made], (1, 2, *size), constants, 13)
    if wanted == list(size):
        return  # it may be the identity, and then it is no network
    net = load(path)
    X = np.random.default_rng(3).normal(size=(1, 2, *size))
    np.testing.assert_allclose(net(X), run(path, X), rtol=1e-5, atol=1e-5)


REFUSED: dict[str, tuple[list[Any], tuple[Any, ...], dict[str, Any], str]] = {
    "batch_slice": ([node("Slice", "x s e a")], ("N", 5), {"s": [1], "e": [2], "a": [0]}, "mixes the points"),
    "batch_gather": ([node("Gather", "x i", axis=0)], ("N", 5), {"i": [0]}, "mixes the points"),
    "batch_pad": ([node("Pad", "x p")], ("N", 5), {"p": [0, 0, 1, 0]}, "adds points"),
    "batch_size": (
        [node("Shape", "x", "s"), node("Gather", "s i", "n"), node("Cast", "n", "f", to=1), node("Mul", "x f")],
        ("N", 5),
        {"i": 0},
        "depends on the size of the batch",
    ),
    "cubic": ([node("Resize", "x - s", mode="cubic")], ("N", *IMAGE), {"s": [1.0, 1.0, 2.0, 2.0]}, "mode 'cubic'"),
    "antialias": (
        [node("Resize", "x - s", mode="linear", antialias=1)],
        ("N", *IMAGE),
        {"s": [1.0, 1.0, 2.0, 2.0]},
        "antialias",
    ),
    "short_kernel": (
        [node("ConvTranspose", "x k", auto_pad="SAME_UPPER", strides=[2, 3])],
        ("N", *IMAGE),
        {"k": KERNEL},
        "larger than",
    ),
    "computed_index": (
        [node("Shape", "x", "s"), node("Add", "x x", "h"), node("Gather", "h h")],
        ("N", 5),
        {},
        "indices",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_mixes_points_is_refused(name: str, tmp_path: Path) -> None:
    nodes, shape, constants, message = REFUSED[name]
    with pytest.raises(UnsupportedModelError, match=message):
        load(graph(tmp_path, nodes, shape, constants))


def test_a_constant_does_not_take_all_memory(tmp_path: Path) -> None:
    nodes = [node("ConstantOfShape", "s", "big"), node("Add", "x big")]
    with pytest.raises(TooLargeError, match="entries is made from 2"):
        load(graph(tmp_path, nodes, ("N", 5), {"s": [1 << 20, 1 << 20]}))


def test_rearranging_costs_one_node_and_reshaping_none(tmp_path: Path) -> None:
    net = load(Function(lambda x: x.transpose(1, 2)[:, 1:].flatten(1).flip(1), nn.Conv2d(4, 4, 1)), IMAGE)
    assert [type(n.operator).__name__ for n in net.nodes if isinstance(n, Affine)] == ["Convolution", "Gather"]
    there_and_back = load(Function(lambda x: x.transpose(1, 2).transpose(1, 2) + 1, nn.Conv2d(4, 4, 1)), IMAGE)
    assert len(there_and_back.nodes) == 2
    assert np.array_equal(there_and_back.nodes[1].offset, np.ones(60))  # type: ignore[union-attr]


def test_gathers_in_a_row_stay_apart_in_files_of_our_own(tmp_path: Path) -> None:
    index = np.array([[2, -1], [0, 0]])
    nodes = [
        Affine(0, Gather(index, (3,)), np.array([1.0, 2.0])),
        Affine(1, Gather(np.arange(4), (4,))),
        Affine(2, Gather(np.array([3, -1, 0]), (2, 2))),
    ]
    net = Network.from_nodes(nodes, (3,))
    save(net, tmp_path / "net.onnx")
    assert identical(load(tmp_path / "net.onnx"), net)
    np.testing.assert_array_equal(net([[5.0, 6.0, 7.0]]), [[7.0, 0.0, 8.0]])


# -- in place ----------------------------------------------------------------------------------------------------------


def overwritten(step: Callable[[Tensor], Tensor]) -> nn.Module:
    return Function(step, nn.Conv2d(4, 4, 1))


def relu_of_a_view(x: Tensor) -> Tensor:
    return x.transpose(1, 2).relu_()


def view_read_again(x: Tensor) -> Tensor:
    y = x.transpose(1, 2)
    y.relu_()
    return y + 1


def base_read_again(x: Tensor) -> Tensor:
    return x[:, 1:].relu_().sum(1) + x.sum(1)


def part_read_again(x: Tensor) -> Tensor:
    a = x.chunk(2, 1)[0]
    x.relu_()
    return a + 1


def copy_overwritten(x: Tensor) -> Tensor:
    return F.relu(F.pad(x, (1, 1)), inplace=True)[:, :, :, 1:-1] + x


@pytest.mark.parametrize("step", [relu_of_a_view, view_read_again, copy_overwritten])
def test_views_may_be_overwritten_if_nothing_else_is_read(step: Any) -> None:
    module = overwritten(step).eval()
    X = np.random.default_rng(0).normal(size=(2, *IMAGE))
    net = load(module, IMAGE)
    with torch.no_grad():
        want = module.double()(torch.from_numpy(X)).numpy().reshape(2, -1)
    np.testing.assert_allclose(net(X), want, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("step", [base_read_again, part_read_again])
def test_overwriting_what_is_read_in_another_order_is_refused(step: Any) -> None:
    with pytest.raises(UnsupportedModelError, match="a part or a transpose is used later"):
        load(overwritten(step), IMAGE)


# -- exact answers -----------------------------------------------------------------------------------------------------


class Small(nn.Module):
    """Few neurons, all kinds of maps between them."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind
        self.first = nn.Linear(3, 4)
        self.spread = nn.ConvTranspose1d(2, 1, 2, 2)
        self.slope = nn.PReLU(2)
        self.last = nn.LazyLinear(2)

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        if self.kind == "abs":
            return self.last(abs(x).flip(1))
        x = F.relu(x).reshape(-1, 2, 2)
        if self.kind == "spread":
            x = self.spread(x)
        elif self.kind == "prelu":
            x = self.slope(x.transpose(1, 2) - 0.3)
        elif self.kind == "resize":
            x = F.interpolate(x, size=3, mode="linear")[:, :, 1:] - x.mean(2, keepdim=True)
        elif self.kind == "clip":
            x = F.hardtanh(x, 0.25, 1.5).transpose(1, 2)
        elif self.kind == "maximum":
            x = torch.maximum(x[:, 0] - 0.3, 1 - x[:, 1])
        elif self.kind == "pad":
            x = F.pad(x, (1, 0), mode="reflect") - 0.2
        return self.last(F.relu(x).flatten(1))


KINDS = ("abs", "spread", "prelu", "resize", "pad", "clip", "maximum")


def small(kind: str) -> tuple[nn.Module, Network]:
    torch.manual_seed(3)
    module = Small(kind)
    with torch.no_grad():
        module(torch.zeros(1, 3))
        for parameter in module.parameters():
            parameter.copy_(torch.round(parameter * 64 + 8 * torch.randn_like(parameter)) / 32)
    return module, load(module)


@pytest.mark.parametrize("kind", KINDS)
def test_regions_of_a_slice_and_their_maps_are_those_of_fractions(kind: str) -> None:
    _, net = small(kind)
    plane = Plane.through(*np.array([[0.0, 0.5, 1.0], [4.0, -3.0, 0.0], [-3.0, -4.0, 1.5]]))
    truth = fraction_regions(plane.view(net).net, *plane.box.halfspaces())
    assert int(count_regions(net, plane)) == len(truth) > 4
    points = np.random.default_rng(0).integers(-64, 64, (12, 3)) / 32
    found = net.signs(points)
    for x, signs in zip(points, found.signs, strict=True):
        matrix, offset = net.affine_at(x)
        exact = [[float(c) for c in form] for form in fraction_map(net, signs.tolist())]
        np.testing.assert_allclose(np.column_stack([matrix, offset]), exact, rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(matrix @ x + offset, net(x[None])[0], rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("kind", ["abs", "spread", "resize", "pad", "clip", "maximum"])
def test_functional_dimension_is_the_rank_of_torchs_jacobian(kind: str) -> None:
    module, net = small(kind)
    X = np.random.default_rng(1).normal(size=(20, 3))
    names = dict(module.named_parameters())
    unused = {name for name in names if name not in net.parameters}
    rows = []
    for x in torch.from_numpy(X):
        for output in module.double()(x[None])[0]:
            used = [p for name, p in module.named_parameters() if name not in unused]
            grads = torch.autograd.grad(output, used, retain_graph=True)
            rows.append(torch.cat([g.reshape(-1) for g in grads]).numpy())
    want = np.array(rows)
    order = np.concatenate([np.arange(net.parameters[n].size) + start for n, start in _starts(net, names, unused)])
    np.testing.assert_allclose(jacobian(net, X)[:, np.argsort(order)], want, rtol=1e-9, atol=1e-9)
    assert functional_dimension(net, X).exact == np.linalg.matrix_rank(want)


def _starts(net: Network, names: dict[str, Any], unused: set[str]) -> list[tuple[str, int]]:
    """For every parameter of the network, in its order, where it begins among torch's."""
    starts, place = {}, 0
    for name, parameter in names.items():
        if name not in unused:
            starts[name] = place
            place += parameter.numel()
    return [(name, starts[name]) for name in net.parameters]


def test_a_transposed_convolution_shares_derivatives_with_torch_in_groups() -> None:
    torch.manual_seed(1)
    module = nn.Sequential(nn.ConvTranspose2d(4, 6, (3, 2), (2, 1), (1, 0), (1, 0), 2, dilation=(1, 2)), nn.ReLU())
    module = module.double()
    net = load(module, (4, 2, 3))
    X = np.random.default_rng(0).normal(size=(2, 4, 2, 3))
    outputs = module(torch.from_numpy(X)).reshape(-1)
    rows = [torch.autograd.grad(value, list(module.parameters()), retain_graph=True) for value in outputs]
    want = np.array([torch.cat([g.reshape(-1) for g in row]).numpy() for row in rows])
    np.testing.assert_allclose(jacobian(net, X), want, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("count", [1, 3])
def test_learned_slopes_keep_their_number_in_files(tmp_path: Path, count: int) -> None:
    module = nn.Sequential(nn.Linear(2, 3), nn.PReLU(count), nn.Linear(3, 1))
    net = load(module)
    assert net.nodes[1].slope_name == "1.weight"  # type: ignore[union-attr]
    X = np.random.default_rng(0).normal(size=(9, 2))
    want = functional_dimension(module, X)
    assert want.num_parameters == 13 + count
    for ending in ("npz", "onnx", "pt", "safetensors"):
        save(net, tmp_path / f"net.{ending}")
        for asked in (net, load(tmp_path / f"net.{ending}")):
            found = functional_dimension(asked, X)
            assert (found.exact, found.num_parameters) == (want.exact, want.num_parameters)
            with pytest.raises(UnsupportedModelError, match=r"parameter 1\.weight: a learned slope"):
                fiber(asked)
    constant = Network.from_nodes(
        [n if isinstance(n, Affine) else PiecewiseLinear(1, n.slopes, (3,)) for n in net.nodes],  # type: ignore[union-attr]
        (2,),
    )
    assert functional_dimension(constant, np.eye(2)).exact == 2


# -- scikit-learn ------------------------------------------------------------------------------------------------------

DATA = np.random.default_rng(0).normal(size=(60, 3)) * np.array([1.0, 50.0, 0.01]) + np.array([0.0, 7.0, -1.0])
TARGET = (DATA @ np.array([1.0, 0.02, 30.0]) > 0).astype(float)


def fitted(*steps: Any, kind: Any = MLPRegressor) -> Any:
    last = kind(hidden_layer_sizes=(5, 4), random_state=0, max_iter=20)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return make_pipeline(*steps, last).fit(DATA, TARGET)


PIPELINES: dict[str, Callable[[], Any]] = {
    "standard": lambda: fitted(StandardScaler()),
    "standard_mean": lambda: fitted(StandardScaler(with_std=False)),
    "standard_deviation": lambda: fitted(StandardScaler(with_mean=False)),
    "min_max": lambda: fitted(MinMaxScaler((-1, 3))),
    "min_max_clip": lambda: fitted(MinMaxScaler((-1, 3), clip=True)),
    "max_abs": lambda: fitted(MaxAbsScaler()),
    "clip_inside": lambda: fitted(StandardScaler(), MinMaxScaler(clip=True), RobustScaler()),
    "robust": lambda: fitted(RobustScaler()),
    "robust_scale": lambda: fitted(RobustScaler(with_centering=False)),
    "nested": lambda: fitted(make_pipeline(RobustScaler(), "passthrough", MinMaxScaler()), StandardScaler()),
    "nothing": fitted,
    "in_full": lambda: Pipeline([("a", StandardScaler()), ("b", fitted(MaxAbsScaler()))]).fit(DATA, TARGET),
}


@pytest.mark.parametrize("name", PIPELINES)
def test_pipelines_of_scalers(name: str, tmp_path: Path) -> None:
    model = PIPELINES[name]()
    net = load(model)
    for X in (DATA, 3 * DATA):  # beyond what the scalers have seen, which those that clip notice
        np.testing.assert_allclose(net(X)[:, 0], model.predict(X), rtol=1e-9, atol=1e-9)
    save(net, tmp_path / "net.onnx")
    assert identical(load(tmp_path / "net.onnx"), net)


def test_a_pipeline_that_ends_in_a_classifier() -> None:
    model = fitted(StandardScaler(), kind=MLPClassifier)
    np.testing.assert_array_equal(load(model)(DATA)[:, 0] > 0, model.predict(DATA) == 1)


def test_pipelines_with_other_steps_are_refused() -> None:
    with pytest.raises(UnsupportedModelError, match="PolynomialFeatures: not supported in a pipeline"):
        load(fitted(PolynomialFeatures(1)))
    with pytest.raises(UnsupportedModelError, match="StandardScaler: expected an MLPClassifier"):
        load(make_pipeline(StandardScaler()))
    fresh = make_pipeline(StandardScaler(), fitted().steps[-1][1])
    with pytest.raises(InputError, match="StandardScaler: expected a fitted scaler"):
        load(fresh)


def test_sums_and_means_are_sparse_maps() -> None:
    net = load(Function(lambda x: x.sum(1)), IMAGE)
    (only,) = net.nodes
    assert isinstance(only, Affine)
    assert isinstance(only.operator, Sparse)
    assert (only.operator.coefficients == 1).all()
