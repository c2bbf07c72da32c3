"""ONNX graphs: every operator against onnxruntime, the names that come out, what is refused, and our own files."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from fiberscope.errors import InputError, UnsupportedModelError
from fiberscope.network.comparison import identical
from fiberscope.network.convolutions import Convolution
from fiberscope.network.formats.float_types import holds
from fiberscope.network.io import load, save
from fiberscope.network.network import Network
from fiberscope.network.nodes import Add, Affine, PiecewiseLinear
from fiberscope.network.operators import Dense, Scale, Sparse

ort = pytest.importorskip("onnxruntime")

IMAGE, SIGNAL, VECTOR = (2, 6, 7), (2, 9), (5,)


def tensor(array: Any, name: str, dtype: Any = np.float32) -> Any:
    return numpy_helper.from_array(np.asarray(array, dtype=dtype), name)


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def weights(*shape: int, seed: int = 0) -> np.ndarray:
    return rng(seed).normal(size=shape).astype(np.float32)


def model(
    nodes: Sequence[Any],
    constants: dict[str, Any],
    shape: Sequence[Any],
    opset: int = 13,
    kind: int = TensorProto.FLOAT,
    **graph_options: Any,
) -> Any:
    """A model from "x" to "y"; constants that are protos already stay as they are."""
    stored = [c if isinstance(c, TensorProto) else tensor(c, n) for n, c in constants.items()]
    graph = helper.make_graph(
        list(nodes),
        "test",
        [helper.make_tensor_value_info("x", kind, shape)],
        [helper.make_tensor_value_info("y", kind, None)],
        stored,
        **graph_options,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def node(kind: str, inputs: str, output: str = "y", **attributes: Any) -> Any:
    return helper.make_node(kind, inputs.split(), [output], f"the_{output}", **attributes)


def integers(*values: int, name: str = "s") -> Any:
    return tensor(values, name, np.int64)


def onnx_file(folder: Path, made: Any) -> Path:
    path = folder / "model.onnx"
    path.write_bytes(made.SerializeToString())
    return path


def agrees(path: Path, net: Network, points: int = 4, full_shape: tuple[int, ...] | None = None) -> None:
    """The file run by onnxruntime in float32, and the network in float64."""
    session = ort.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    X = rng(9).normal(size=(points, *net.input_shape)).astype(np.float32)
    shape = full_shape or (1, *net.input_shape)
    (name,) = (value.name for value in session.get_inputs())
    want = np.stack([session.run(None, {name: x.reshape(shape)})[0].reshape(-1) for x in X])
    got = net(X.astype(np.float64))
    assert got.shape == want.shape
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4 * max(1.0, np.abs(want).max()))


W, B = weights(5, 4), weights(4, seed=1)
MEAN, VAR = weights(2, seed=2), np.abs(weights(2, seed=3)) + 0.5
K = weights(4, 2, 3, 2)
GEMM = "x w b"

# name: (nodes, constants, full input shape)
GRAPHS: dict[str, tuple[list[Any], dict[str, Any], tuple[Any, ...]]] = {
    "gemm": ([node("Gemm", GEMM)], {"w": W, "b": B}, ("N", 5)),
    "gemm_transposed": ([node("Gemm", GEMM, transB=1)], {"w": W.T.copy(), "b": B}, (1, 5)),
    "gemm_scaled": ([node("Gemm", GEMM, alpha=0.5, beta=-2.0)], {"w": W, "b": B[None]}, ("N", 5)),
    "gemm_beta_zero": ([node("Gemm", GEMM, beta=0.0)], {"w": W, "b": B}, ("N", 5)),
    "gemm_scalar_bias": ([node("Gemm", GEMM)], {"w": W, "b": np.float32(0.5)}, ("N", 5)),
    "gemm_column": ([node("Gemm", "w x b", transA=1)], {"w": W, "b": B[:, None]}, (5, 1)),
    "gemm_transposed_value": ([node("Gemm", GEMM, transA=1)], {"w": W, "b": B}, (5, 1)),
    "matmul": ([node("MatMul", "x w")], {"w": W}, ("N", 5)),
    "matmul_rows": ([node("MatMul", "x w")], {"w": W}, ("N", 3, 5)),
    "matmul_vector": ([node("MatMul", "x w", "h"), node("Relu", "h")], {"w": W[:, 0]}, ("N", 5)),
    "matmul_left": ([node("MatMul", "w x")], {"w": W}, ("N", 4, 3)),
    "matmul_left_vector": ([node("MatMul", "w x", "h"), node("Relu", "h")], {"w": W.T.copy()}, (5,)),
    "cast": ([node("Cast", "x", "h", to=11), node("Relu", "h", "r"), node("Cast", "r", to=1)], {}, ("N", 5)),
    "matmul_left_column": ([node("MatMul", "w x")], {"w": W.T.copy()}, (5, 1)),
    "matmul_unbatched": ([node("MatMul", "x w", "h"), node("Add", "h b")], {"w": W, "b": B}, (5,)),
    "matmul_stack_of_one": ([node("MatMul", "x w")], {"w": W[None]}, (1, 1, 5)),
    "matmul_add": ([node("MatMul", "x w", "h"), node("Add", "b h")], {"w": W, "b": B}, ("N", 5)),
    "add_broadcast": ([node("Add", "x c")], {"c": weights(4, 1)}, ("N", 1, 3)),
    "add_batch_axis": ([node("Add", "x c")], {"c": weights(1, 2, 1, 1)}, ("N", *IMAGE)),
    "sub": ([node("Sub", "x c")], {"c": weights(5)}, (1, 5)),
    "sub_from": ([node("Sub", "c x")], {"c": weights(5)}, ("N", 5)),
    "mul": ([node("Mul", "c x")], {"c": weights(2, 1, 1)}, ("N", *IMAGE)),
    "mul_broadcast": ([node("Mul", "x c")], {"c": weights(3, 1)}, ("N", 1, 5)),
    "div": ([node("Div", "x c")], {"c": weights(5)}, ("N", 5)),
    "residual": ([node("Relu", "x", "h"), node("Add", "h x")], {}, ("N", 5)),
    "difference": ([node("Relu", "x", "h"), node("Sub", "h x")], {}, ("N", 5)),
    "residual_broadcast": ([node("GlobalAveragePool", "x", "h"), node("Add", "h x")], {}, ("N", *IMAGE)),
    "sum": ([node("Relu", "x", "h"), node("Sum", "h x h")], {}, ("N", 5)),
    "leaky": ([node("LeakyRelu", "x", alpha=0.3)], {}, ("N", 5)),
    "leaky_default": ([node("LeakyRelu", "x")], {}, ("N", 5)),
    "prelu": ([node("PRelu", "x c")], {"c": weights(2, 1, 1)}, ("N", *IMAGE)),
    "conv": (
        [node("Conv", "x k b", pads=[1, 0, 0, 2], strides=[2, 1], dilations=[1, 2])],
        {"k": K, "b": B},
        ("N", *IMAGE),
    ),
    "conv_same_upper": ([node("Conv", "x k", auto_pad="SAME_UPPER", strides=[2, 2])], {"k": K}, ("N", *IMAGE)),
    "conv_same_lower": ([node("Conv", "x k", auto_pad="SAME_LOWER", strides=[1, 2])], {"k": K}, ("N", *IMAGE)),
    "conv_valid": ([node("Conv", "x k", auto_pad="VALID")], {"k": K}, ("N", *IMAGE)),
    "conv_groups": ([node("Conv", "x k", group=2, kernel_shape=[3, 2])], {"k": K[:, :1].copy()}, (1, *IMAGE)),
    "conv_1d": ([node("Conv", "x k b", pads=[1, 2], strides=[2])], {"k": K[:, :, :, 0].copy(), "b": B}, ("N", *SIGNAL)),
    "conv_add": ([node("Conv", "x k", "h"), node("Add", "h c")], {"k": K, "c": weights(4, 1, 1)}, ("N", *IMAGE)),
    "batch_norm": (
        [node("BatchNormalization", "x g b m v", epsilon=0.01)],
        {"g": weights(2), "b": weights(2, seed=5), "m": MEAN, "v": VAR},
        ("N", *IMAGE),
    ),
    "flatten": ([node("Flatten", "x", "h"), node("Gemm", "h w")], {"w": weights(84, 3)}, ("N", *IMAGE)),
    "flatten_all": ([node("Flatten", "x", "h", axis=0), node("Relu", "h")], {}, (1, *IMAGE)),
    "flatten_negative": ([node("Flatten", "x", "h", axis=-3), node("Relu", "h")], {}, (1, *IMAGE)),
    "flatten_rows": ([node("Flatten", "x", "h", axis=2), node("MatMul", "h w")], {"w": weights(42, 3)}, (1, *IMAGE)),
    "reshape": ([node("Reshape", "x s", "h"), node("Relu", "h")], {"s": integers(0, -1, 3)}, ("N", 2, 6)),
    "reshape_batch": (
        [node("Reshape", "x s", "h"), node("Gemm", "h w")],
        {"s": integers(-1, 84), "w": weights(84, 2)},
        ("N", *IMAGE),
    ),
    "reshape_no_batch": (
        [node("Reshape", "x s", "h"), node("MatMul", "h w", "g"), node("Add", "g b")],
        {"s": integers(5), "w": W, "b": B},
        (1, 1, 1, 5),
    ),
    "reshape_all": ([node("Reshape", "x s", "h"), node("MatMul", "h w")], {"s": integers(-1), "w": W}, (1, 1, 5)),
    "reshape_and_back": (
        [node("Reshape", "x s", "h"), node("Relu", "h", "g"), node("Reshape", "g t", "f"), node("Gemm", "f w")],
        {"s": integers(5), "t": integers(1, 5, name="t"), "w": W},
        (1, 5),
    ),
    "average_pool": ([node("AveragePool", "x", kernel_shape=[2, 3], strides=[2, 2])], {}, ("N", *IMAGE)),
    "average_pool_pads": ([node("AveragePool", "x", kernel_shape=[3, 3], pads=[1, 0, 1, 2])], {}, ("N", *IMAGE)),
    "average_pool_count": (
        [node("AveragePool", "x", kernel_shape=[3, 3], pads=[1, 1, 1, 1], count_include_pad=1, strides=[2, 2])],
        {},
        ("N", *IMAGE),
    ),
    "average_pool_ceil": (
        [node("AveragePool", "x", kernel_shape=[3, 3], strides=[2, 2], ceil_mode=1)],
        {},
        ("N", *IMAGE),
    ),
    "average_pool_same": ([node("AveragePool", "x", kernel_shape=[3, 2], auto_pad="SAME_UPPER")], {}, ("N", *IMAGE)),
    "average_pool_1d": ([node("AveragePool", "x", kernel_shape=[4], strides=[3])], {}, ("N", *SIGNAL)),
    "global_average_pool": ([node("GlobalAveragePool", "x")], {}, ("N", *IMAGE)),
    "global_average_pool_1d": ([node("GlobalAveragePool", "x")], {}, ("N", *SIGNAL)),
    "max_pool": ([node("MaxPool", "x", kernel_shape=[2, 3], strides=[1, 2], pads=[1, 0, 0, 1])], {}, ("N", *IMAGE)),
    "max_pool_ceil": ([node("MaxPool", "x", kernel_shape=[3, 2], strides=[2, 2], ceil_mode=1)], {}, ("N", *IMAGE)),
    "max_pool_dilated": ([node("MaxPool", "x", kernel_shape=[2, 2], dilations=[2, 3])], {}, ("N", *IMAGE)),
    "max_pool_1d": ([node("MaxPool", "x", kernel_shape=[3], strides=[2])], {}, ("N", *SIGNAL)),
    "concat": ([node("Relu", "x", "h"), node("Concat", "h x h", axis=1)], {}, ("N", *IMAGE)),
    "concat_last": ([node("Relu", "x", "h"), node("Concat", "x h", axis=-1)], {}, ("N", *IMAGE)),
    "identity": ([node("Identity", "x", "h"), node("Dropout", "h", "g"), node("Relu", "g")], {}, ("N", 5)),
    "identity_constant": ([node("Identity", "w", "v"), node("MatMul", "x v")], {"w": W}, ("N", 5)),
    "constant_node": (
        [helper.make_node("Constant", [], ["w"], value=tensor(W, "w")), node("MatMul", "x w")],
        {},
        ("N", 5),
    ),
    "constant_float": ([helper.make_node("Constant", [], ["c"], value_float=0.5), node("Mul", "x c")], {}, ("N", 5)),
    "dead_branch": ([node("Sigmoid", "x", "unused"), node("Relu", "x")], {}, ("N", 5)),
    "fixed_batch": ([node("Flatten", "x", "h"), node("Gemm", "h w")], {"w": weights(6, 2)}, (1, 2, 3)),
}


@pytest.mark.parametrize("name", GRAPHS)
def test_an_operator_agrees_with_onnxruntime(name: str, tmp_path: Path) -> None:
    nodes, constants, shape = GRAPHS[name]
    path = onnx_file(tmp_path, model(nodes, constants, shape))
    full = tuple(n if isinstance(n, int) else 1 for n in shape)
    agrees(path, load(path), full_shape=full)


@given(
    size=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    stride=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    pads=st.tuples(*[st.integers(0, 2)] * 4),
    image=st.tuples(st.integers(3, 6), st.integers(3, 6)),
    count=st.booleans(),
    ceil=st.booleans(),
    kind=st.sampled_from(["AveragePool", "MaxPool", "Conv"]),
)
@settings(max_examples=60)
def test_windows_agree_with_onnxruntime(
    size: Any, stride: Any, pads: Any, image: Any, count: bool, ceil: bool, kind: str, tmp_path_factory: Any
) -> None:
    pads = tuple(min(p, size[i % 2] - 1) for i, p in enumerate(pads))
    options: dict[str, Any] = {"kernel_shape": size, "strides": stride, "pads": pads}
    constants = {"k": weights(2, 1, *size)} if kind == "Conv" else {}
    options |= {"group": 2} if kind == "Conv" else {}
    options |= {"count_include_pad": int(count)} if kind == "AveragePool" else {}
    options |= {"ceil_mode": int(ceil)} if kind != "Conv" else {}
    made = model([node(kind, "x k" if kind == "Conv" else "x", **options)], constants, ("N", 2, *image))
    path = onnx_file(tmp_path_factory.mktemp("windows"), made)
    agrees(path, load(path), points=2)


# -- structure and names -----------------------------------------------------------------------------------------


def read(
    folder: Path, nodes: Sequence[Any], constants: dict[str, Any], shape: Sequence[Any], **options: Any
) -> Network:
    return load(onnx_file(folder, model(nodes, constants, shape, **options)))


def test_matmul_and_add_become_one_dense_layer(tmp_path: Path) -> None:
    net = read(tmp_path, *GRAPHS["matmul_add"])
    assert net.is_chain and list(net.parameters) == ["w", "b"]
    np.testing.assert_array_equal(net.weights[0], W.T.astype(np.float64))
    for name in ("reshape_no_batch", "conv_add", "matmul_unbatched"):
        assert len(read(tmp_path, *GRAPHS[name]).nodes) == 1


def test_matmul_with_a_second_reader_keeps_its_value(tmp_path: Path) -> None:
    for between in (None, "Identity"):
        second = [node("Identity", "h", "i")] if between else []
        nodes = [node("MatMul", "x w", "h"), *second, node("Add", "i b" if between else "h b", "g"), node("Sub", "g h")]
        net = read(tmp_path, nodes, {"w": W, "b": B}, ("N", 5))
        np.testing.assert_allclose(net(np.ones((1, 5))), B[None].astype(np.float64), rtol=1e-14)


def test_changed_constants_have_no_name(tmp_path: Path) -> None:
    for name, names in {"sub": [], "div": [], "sub_from": ["c"], "mul": ["c"], "gemm_scaled": ["w"]}.items():
        assert list(read(tmp_path, *GRAPHS[name]).parameters) == names


def test_batch_normalisation_is_standardised_first(tmp_path: Path) -> None:
    first, second = read(tmp_path, *GRAPHS["batch_norm"]).nodes
    assert isinstance(first, Affine) and (first.weight_name, first.bias_name) == (None, None)
    assert isinstance(second, Affine) and (second.weight_name, second.bias_name) == ("g", "b")


def test_an_initializer_in_two_layouts_is_a_constant(tmp_path: Path) -> None:
    nodes = [node("Gemm", "x w", "h"), node("Relu", "h", "g"), node("Gemm", "g w", transB=1)]
    net = read(tmp_path, nodes, {"w": W}, ("N", 5))
    assert not net.parameters
    assert [n.operator.out_size for n in net.nodes if isinstance(n, Affine)] == [4, 5]


def test_shared_initializers_share_their_name(tmp_path: Path) -> None:
    square = weights(5, 5)
    nodes = [node("MatMul", "x w", "h"), node("Relu", "h", "g"), node("MatMul", "g w")]
    net = read(tmp_path, nodes, {"w": square}, ("N", 5))
    assert net.num_parameters == 25


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_numbers_are_taken_over_exactly(dtype: Any, tmp_path: Path) -> None:
    array = rng().normal(size=(5, 4)).astype(dtype)
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    net = read(tmp_path, [node("MatMul", "x w")], {"w": tensor(array, "w", dtype)}, ("N", 5), kind=kind)
    np.testing.assert_array_equal(net.weights[0], array.T.astype(np.float64))


def test_the_input_shape_of_open_files(tmp_path: Path) -> None:
    nodes = [node("Conv", "x k", "h"), node("Relu", "h")]
    path = onnx_file(tmp_path, model(nodes, {"k": K}, ("N", 2, "H", "W")))
    with pytest.raises(InputError, match=r"'x' has the open shape \(\?, 2, \?, \?\); give input_shape"):
        load(path)
    agrees(path, load(path, (2, 5, 6)))
    with pytest.raises(InputError, match=r"input_shape: expected \(2, \?, \?\)"):
        load(path, (3, 5, 6))


def test_a_given_shape_of_the_right_size_relabels_the_input(tmp_path: Path) -> None:
    path = onnx_file(tmp_path, model([node("Flatten", "x", "h"), node("Gemm", "h w")], {"w": W}, (1, 1, 1, 5)))
    assert load(path).input_shape == (1, 1, 5)
    assert load(path, (5,)).input_shape == (5,)
    with pytest.raises(InputError, match="input_shape"):
        load(path, (6,))


def test_opset_8_and_attributes_of_older_files(tmp_path: Path) -> None:
    net = read(tmp_path, [node("Reshape", "x", "h", shape=[1, 5]), node("Relu", "h")], {}, (1, 1, 5), opset=1)
    assert net.in_size == 5


# -- refusals ------------------------------------------------------------------------------------------------------

UNSUPPORTED: dict[str, tuple[list[Any], dict[str, Any], tuple[Any, ...], str]] = {
    "operator": ([node("Sigmoid", "x")], {}, ("N", 5), r"node 'the_y' \(Sigmoid\): it is not piecewise linear"),
    "domain": ([helper.make_node("Relu", ["x"], ["y"], domain="my.ops")], {}, ("N", 5), "of the domain my.ops"),
    "product": ([node("Mul", "x x")], {}, ("N", 5), r"\(Mul\): a product of computed values"),
    "matrix_product": ([node("MatMul", "x x")], {}, ("N", 5), r"\(MatMul\): a product of computed values"),
    "gemm_product": ([node("Gemm", "x x")], {}, ("N", 5), r"\(Gemm\): a product of computed values"),
    "quotient": ([node("Div", "c x")], {"c": B}, ("N", 4), r"\(Div\): division by a computed value"),
    "kernel": ([node("Relu", "x", "k"), node("Conv", "x k")], {}, ("N", *IMAGE), "kernel is not a constant"),
    "integer_weight": (
        [node("MatMul", "x w")],
        {"w": tensor(W, "w", np.int32)},
        ("N", 5),
        "type INT32; expected FLOAT16",
    ),
    "batch_concat": ([node("Concat", "x x", axis=0)], {}, ("N", 5), "batch axis mixes the points"),
    "batch_constant": ([node("Add", "x c")], {"c": weights(3, 5)}, ("N", 5), "changes the batch"),
    "indices": (
        [helper.make_node("MaxPool", ["x"], ["h", "i"], kernel_shape=[1, 1]), node("Sub", "h i")],
        {},
        ("N", *IMAGE),
        "further output 'i' is used",
    ),
    "three_d": ([node("MaxPool", "x", kernel_shape=[1, 1, 1])], {}, ("N", 1, 2, 2, 2), "or an image"),
    "computed_shape": (
        [node("Relu", "x", "s"), node("Reshape", "x s")],
        {},
        ("N", 5),
        r"target shape is not a constant",
    ),
    "training": (
        [node("BatchNormalization", "x g g g g", training_mode=1)],
        {"g": VAR},
        ("N", *IMAGE),
        "evaluation mode",
    ),
    "old_broadcast": ([node("Add", "x c", broadcast=1)], {"c": weights(5)}, ("N", 5), "before opset 7"),
    "stack": ([node("MatMul", "x w")], {"w": weights(2, 5, 3)}, ("N", 2, 5), "stack of matrices"),
    "batch_product": ([node("MatMul", "w x")], {"w": W.T.copy()}, ("N", 1), "give its full shape as input_shape"),
}


@pytest.mark.parametrize("name", UNSUPPORTED)
def test_the_node_at_fault_is_named(name: str, tmp_path: Path) -> None:
    nodes, constants, shape, message = UNSUPPORTED[name]
    with pytest.raises(UnsupportedModelError, match=message) as caught:
        read(tmp_path, nodes, constants, shape, opset=13)
    assert "\n" not in str(caught.value) and str(tmp_path) in str(caught.value)


def test_an_integer_input_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedModelError, match="input 'x' has type UINT8"):
        read(tmp_path, [node("Relu", "x")], {}, ("N", 5), kind=TensorProto.UINT8)


INVALID: dict[str, tuple[list[Any], dict[str, Any], tuple[Any, ...], str]] = {
    "undefined": ([node("Relu", "nothing")], {}, ("N", 5), "input 'nothing' is not defined"),
    "nan": (
        [node("MatMul", "x w")],
        {"w": W * np.nan},
        ("N", 5),
        r"node 'the_y' \(MatMul\): w: expected finite numbers",
    ),
    "inf": ([node("Add", "x b")], {"b": B + np.inf}, ("N", 4), "b: expected finite numbers, got inf"),
    "shapes": ([node("MatMul", "x w")], {"w": W}, ("N", 6), "expected 5 entries along the last axis"),
    "bias": ([node("Conv", "x k b")], {"k": K, "b": B[:2]}, ("N", *IMAGE), "bias: expected shape"),
    "broadcast": ([node("Add", "x c")], {"c": B}, ("N", 5), "do not broadcast"),
    "reshape": ([node("Reshape", "x s")], {"s": integers(1, 7)}, ("N", 5), "cannot reshape"),
    "reshape_twice": ([node("Reshape", "x s")], {"s": integers(-1, -1)}, ("N", 5), "at most one -1"),
    "missing_input": ([node("Gemm", "x")], {}, ("N", 5), "malformed"),
    "zero": ([node("Div", "x c")], {"c": B * 0}, ("N", 4), "division by zero"),
    "channels": ([node("Conv", "x k")], {"k": K}, ("N", 3, 6, 6), "input channels"),
    "kernel": ([node("MaxPool", "x", kernel_shape=[9, 9])], {}, ("N", *IMAGE), "does not fit"),
    "strides": ([node("MaxPool", "x", kernel_shape=[2, 2], strides=[0, 1])], {}, ("N", *IMAGE), "expected positive"),
    "variance": ([node("BatchNormalization", "x g g g v")], {"g": MEAN, "v": -VAR}, ("N", *IMAGE), "variance"),
    "input_only": ([node("Identity", "x")], {}, ("N", 5), "returns its input"),
}


@pytest.mark.parametrize("name", INVALID)
def test_inconsistent_files(name: str, tmp_path: Path) -> None:
    nodes, constants, shape, message = INVALID[name]
    with pytest.raises((InputError, UnsupportedModelError), match=message) as caught:
        read(tmp_path, nodes, constants, shape)
    assert "\n" not in str(caught.value)


def test_tensors_with_too_few_numbers(tmp_path: Path) -> None:
    short = tensor(W, "w")
    short.raw_data = short.raw_data[:-4]
    with pytest.raises(InputError, match="tensor 'w': expected 20 numbers"):
        read(tmp_path, [node("MatMul", "x w")], {"w": short}, ("N", 5))


def test_several_inputs_or_outputs_are_refused(tmp_path: Path) -> None:
    made = model([node("Relu", "x")], {}, ("N", 5))
    made.graph.input.append(helper.make_tensor_value_info("z", TensorProto.FLOAT, ["N", 5]))
    with pytest.raises(UnsupportedModelError, match=r"one input, got 2 \(x, z\)"):
        load(onnx_file(tmp_path, made))
    made = model([node("Relu", "x")], {}, ("N", 5))
    made.graph.output.append(helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 5]))
    with pytest.raises(UnsupportedModelError, match="one output, got 2"):
        load(onnx_file(tmp_path, made))


# -- data in other files -----------------------------------------------------------------------------------------


def external(location: str, **more: Any) -> Any:
    made = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=W.shape, data_location=TensorProto.EXTERNAL)
    for key, value in {"location": location, **more}.items():
        made.external_data.add(key=key, value=str(value))
    return made


def test_data_beside_the_file_is_read(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "w.bin").write_bytes(b"1234" + W.tobytes())
    net = read(tmp_path, [node("MatMul", "x w")], {"w": external("data/w.bin", offset=4, length=80)}, ("N", 5))
    np.testing.assert_array_equal(net.weights[0], W.T.astype(np.float64))
    assert net.source.data == (("data/w.bin", hashlib.sha256(b"1234" + W.tobytes()).hexdigest()),)


def test_data_elsewhere_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "models"
    folder.mkdir()
    secret = tmp_path / "secret.bin"
    secret.write_bytes(W.tobytes())
    (folder / "link.bin").symlink_to(secret)
    for location in ("../secret.bin", str(secret), "link.bin", ".", ""):
        with pytest.raises(InputError, match="outside of the model's folder"):
            read(folder, [node("MatMul", "x w")], {"w": external(location)}, ("N", 5))


@pytest.mark.parametrize(
    ("more", "message"), [({"length": 12}, "80 bytes"), ({}, "too short"), ({"offset": -1}, "bytes")]
)
def test_damaged_data_files(more: dict[str, Any], message: str, tmp_path: Path) -> None:
    (tmp_path / "w.bin").write_bytes(W.tobytes()[:-1])
    with pytest.raises(InputError, match=message):
        read(tmp_path, [node("MatMul", "x w")], {"w": external("w.bin", **more)}, ("N", 5))
    with pytest.raises(InputError, match="missing"):
        read(tmp_path, [node("MatMul", "x w")], {"w": external("nothing.bin")}, ("N", 5))


# -- our own files -------------------------------------------------------------------------------------------------


def write(net: Network, folder: Path, dtype: str | None = None) -> Path:
    path = folder / "net.onnx"
    save(net, path, dtype)
    onnx.checker.check_model(str(path), full_check=True)
    return path


@pytest.mark.parametrize("name", GRAPHS)
def test_what_was_read_is_written_and_read_again(name: str, tmp_path: Path) -> None:
    nodes, constants, shape = GRAPHS[name]
    path = onnx_file(tmp_path, model(nodes, constants, shape))
    net = load(path)
    again = write(net, tmp_path)
    assert identical(load(again), net)
    # A mean over six entries has factors that are no float32, and onnxruntime has no convolution in float64.
    same_face(path, again if holds(net, "float32") else write(net, tmp_path, "float32"))
    full = tuple(n if isinstance(n, int) else 1 for n in shape)
    agrees(write(net, tmp_path, "float32"), net, full_shape=full)


def face(path: Path) -> Any:
    """What a runtime sees of a model: names, shapes and types."""
    session = ort.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    return [(v.name, v.type, v.shape) for v in session.get_inputs()], [(v.name, v.type) for v in session.get_outputs()]


def same_face(one: Path, two: Path) -> None:
    """The second file can take the place of the first: the same face, the same results in the same shape and type."""
    assert face(one) == face(two)
    versions = [(m.ir_version, [(o.domain, o.version) for o in m.opset_import]) for m in map(onnx.load, (one, two))]
    assert versions[0] == versions[1]
    sessions = [ort.InferenceSession(str(path), providers=["CPUExecutionProvider"]) for path in (one, two)]
    (entry,) = sessions[0].get_inputs()
    kind = {"tensor(float)": np.float32, "tensor(double)": np.float64, "tensor(float16)": np.float16}[entry.type]
    for batch in (1,) if entry.shape and isinstance(entry.shape[0], int) else (1, 3):
        feed = {entry.name: rng(5).normal(size=[n if isinstance(n, int) else batch for n in entry.shape]).astype(kind)}
        (want,), (got,) = (session.run(None, feed) for session in sessions)
        assert want.shape == got.shape and want.dtype == got.dtype
        close = 2e-2 if kind == np.float16 else 1e-4
        np.testing.assert_allclose(got, want, rtol=close, atol=close * max(1.0, float(np.abs(want).max())))


@pytest.mark.parametrize("kind", [TensorProto.FLOAT16, TensorProto.FLOAT, TensorProto.DOUBLE])
@pytest.mark.parametrize("opset", [9, 11, 13, 17, 21])
@pytest.mark.parametrize("shape", [("batch", 5), (1, 5), (4, 5), (5,), (5, 1)])
def test_a_saved_file_takes_the_place_of_the_one_that_was_read(
    kind: int, opset: int, shape: tuple[Any, ...], tmp_path: Path
) -> None:
    dtype = helper.tensor_dtype_to_np_dtype(kind)
    small = {"w": W.T / 8, "b": B, "v": weights(2, 4) / 4, "c": weights(2, seed=4)}
    if shape[-1] == 5 and len(shape) > 1:
        nodes = [node("Gemm", "x w b", "h", transB=1), node("Relu", "h", "r"), node("Gemm", "r v c", transB=1)]
    else:
        small |= {"b": B.reshape(-1, *shape[1:]), "c": small["c"].reshape(-1, *shape[1:])}
        nodes = [node("MatMul", "w x", "h"), node("Add", "h b", "a"), node("Relu", "a", "r")]
        nodes += [node("MatMul", "v r", "s"), node("Add", "s c")]
    constants = {name: tensor(np.asarray(a), name, dtype) for name, a in small.items()}
    made = model(nodes, constants, shape, opset=opset, kind=kind)
    path = onnx_file(tmp_path, made)
    net = load(path)
    again = write(net, tmp_path)
    same_face(path, again)
    stored = {t.data_type for t in onnx.load(again).graph.initializer} - {TensorProto.INT64}
    assert stored == {kind} and identical(load(again), net)
    finer = write(net.with_parameters({"w": net.parameters["w"] + 1e-12}), tmp_path)  # it fits into float64 alone
    same_face(path, finer)
    assert len({t.data_type for t in onnx.load(finer).graph.initializer} - {TensorProto.INT64}) == 1
    assert load(finer).parameters["w"][0, 0] == net.parameters["w"][0, 0] + 1e-12


def test_names_are_kept_where_they_would_clash(tmp_path: Path) -> None:
    """The file's tensors have the names that ours would have."""
    nodes = [helper.make_node("Gemm", ["gemm", "weight", "shape"], ["relu"], "input")]
    graph = helper.make_graph(
        nodes,
        "test",
        [helper.make_tensor_value_info("gemm", TensorProto.FLOAT, ["cast", 5])],
        [helper.make_tensor_value_info("relu", TensorProto.FLOAT, None)],
        [tensor(W, "weight"), tensor(B, "shape")],
    )
    path = onnx_file(tmp_path, helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8))
    again = write(load(path), tmp_path)
    same_face(path, again)
    assert identical(load(again), load(path))


def test_an_interface_that_does_not_fit_is_left(tmp_path: Path) -> None:
    path = onnx_file(tmp_path, model(*GRAPHS["gemm"]))
    net = load(path)
    other = Network.random((3, 2), 0).with_source(net.source.derived)
    written = face(write(other, tmp_path, "float32"))
    assert written == ([("input", "tensor(float)", ["N", 3])], [("output", "tensor(float)")])
    cut = load(path.parent / "net.onnx", until="gemm")
    assert cut.source.interface is not None and cut.source.interface.output == "output"


def test_a_constant_on_the_left_of_a_vector(tmp_path: Path) -> None:
    """``W x + b`` as some exporters write it, on ``(n,)`` and ``(n, 1)``, without a word about the batch axis."""
    for shape in ((5,), (5, 1)):
        bias = B.reshape(-1, *shape[1:])
        nodes = [node("MatMul", "w x", "h"), node("Add", "h b", "g"), node("Relu", "g", "r"), node("MatMul", "v r")]
        net = read(tmp_path, nodes, {"w": W.T.copy(), "b": bias, "v": weights(2, 4)}, shape)
        assert list(net.parameters) == ["w", "b", "v"] and net.num_hidden == 4 and net.input_shape == shape
        x = rng(3).normal(size=5)
        want = weights(2, 4).astype(float) @ np.maximum(W.T.astype(float) @ x + B, 0)
        np.testing.assert_allclose(net(x[None])[0], want, rtol=1e-6)
        agrees(tmp_path / "model.onnx", net, full_shape=shape)
    row = read(tmp_path, [node("MatMul", "w x")], {"w": W[:, 0].copy()}, (5,))
    np.testing.assert_allclose(row(x[None])[0], [W[:, 0] @ x], rtol=1e-6)
    stack = read(tmp_path, [node("MatMul", "w x")], {"w": W.T[None].copy()}, ("N", 5, 1))
    np.testing.assert_allclose(stack(x[None])[0], W.T @ x, rtol=1e-6)
    with pytest.raises(UnsupportedModelError, match="mixes the points of a batch"):
        read(tmp_path, [node("MatMul", "w x")], {"w": W.T.copy()}, ("N", 5))


def test_float32_where_it_is_exact(tmp_path: Path) -> None:
    def kinds(path: Path) -> set[int]:
        return {t.data_type for t in onnx.load(path).graph.initializer} - {TensorProto.INT64}

    coarse = Network([[[0.5]], [[0.25]]], [[1.0], [2.0]])
    fine = Network([[[0.1]], [[0.25]]], [[1.0], [2.0]])
    assert kinds(write(coarse, tmp_path)) == {TensorProto.FLOAT}
    assert kinds(write(coarse, tmp_path, "float64")) == {TensorProto.DOUBLE}
    assert kinds(write(fine, tmp_path)) == {TensorProto.DOUBLE}
    assert kinds(write(fine, tmp_path, "float32")) == {TensorProto.FLOAT}
    assert load(tmp_path / "net.onnx").weights[0][0, 0] == np.float32(0.1)
    with pytest.raises(InputError, match="range of float32, got 1e\\+300"):
        save(Network([[[1e300]]], [[0.0]]), tmp_path / "big.onnx", "float32")


def test_slopes_keep_all_their_bits(tmp_path: Path) -> None:
    for slope in (0.1, 0.25, 1.0, -0.0, -3.0, 1e-320):
        net = Network([[[0.5]], [[0.25]]], [[1.0], [2.0]], "leaky_relu", slope=slope)
        assert identical(load(write(net, tmp_path)), net)


def test_odd_names_and_shapes_survive(tmp_path: Path) -> None:
    """Names that clash with the writer's own or with ONNX, biases of every shape, signs of zero."""
    conv = Convolution(weights(2, 2, 1, 1).astype(float), (2, 2, 2))
    nodes = [
        Affine(0, Scale(np.asarray(2.0), (2, 2, 2)), np.full((2, 2), 0.5), "input", "output"),
        Affine(1, conv, np.full((2, 1, 1), 0.25), "", "shared"),
        Affine(2, conv, np.full((2, 1, 1), 0.25), "", "shared"),
        Affine(3, Scale(np.full((2, 1, 1), 0.25), (2, 2, 2)), np.zeros(()), "shared", "gemm"),
        Affine(4, conv, np.full((2, 2, 2), -0.0), None, "zeros"),
        Affine(5, conv, np.full((2, 2, 2), 0.0), None, "zeros"),
        PiecewiseLinear(6, np.full((8,), 0.5), (8,)),
        Affine(7, Dense(weights(3, 8).astype(float), (2, 2, 2)), np.ones(1), "weight", None),
        Affine(8, Sparse(np.eye(4, 3), (1, 3), (2, 2)), np.ones((2, 1)), "s p/a:r.s\u00e9", "b"),
        Add((9, 9, 9), (4,)),
    ]
    net = Network.from_nodes(nodes, (2, 2, 2))
    assert identical(load(write(net, tmp_path)), net)
    agrees(write(net, tmp_path, "float32"), net)


def test_a_network_of_one_number(tmp_path: Path) -> None:
    net = Network.from_nodes([Affine(0, Scale(np.asarray(2.0), ()), np.asarray(1.0), "w", "b")], ())
    assert identical(load(write(net, tmp_path)), net)


def test_notes_that_do_not_fit_are_refused_or_ignored(tmp_path: Path) -> None:
    path = write(Network.random((2, 3, 1), 0), tmp_path)
    made = onnx.load(path)
    helper.set_model_props(made, {"fiberscope": "{"})
    with pytest.raises(InputError, match="notes under 'fiberscope'"):
        load(onnx_file(tmp_path, made))
    helper.set_model_props(made, {"fiberscope": '{"compositions": [[["gemm", "relu"], null]]}'})
    with pytest.raises(InputError, match="composition"):
        load(onnx_file(tmp_path, made))
    helper.set_model_props(made, {"fiberscope": '{"shapes": {"gemm": [[7], [3]]}, "compositions": [[["gone"], "w"]]}'})
    with pytest.raises(InputError, match="expected"):
        load(onnx_file(tmp_path, made))


def test_the_graph_counts_and_not_the_notes(tmp_path: Path) -> None:
    """Someone edits the graph of our file: the change is seen."""
    net = Network.random((2, 3, 1), 0)
    made = onnx.load(write(net, tmp_path))
    made.graph.node[1].op_type = "Identity"
    changed = load(onnx_file(tmp_path, made))
    assert not any(isinstance(n, PiecewiseLinear) for n in changed.nodes)
