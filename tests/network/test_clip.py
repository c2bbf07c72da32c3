"""Clipping: two kinks per neuron, evaluated as it stands, exactly what its plain nodes mean, kept by every format."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from fiberscope.dimension.functional import functional_dimension
from fiberscope.dimension.jacobian import jacobian
from fiberscope.errors import InputError
from fiberscope.geometry.domains import Box
from fiberscope.geometry.regions import count_regions, regions
from fiberscope.network.comparison import identical
from fiberscope.network.formats.float_types import rounded
from fiberscope.network.io import load, save
from fiberscope.network.network import Network
from fiberscope.network.nodes import Affine, Clip, PiecewiseLinear
from fiberscope.network.operators import Dense, Scale
from fiberscope.network.walk import all_values
from fiberscope.numerics.algebra.ball import EXACT, BallAlgebra
from fiberscope.numerics.algebra.bounded import BOUNDED
from fiberscope.testing import fraction_map, fraction_regions, fraction_signs, fraction_values
from fiberscope.testing.hostile import TAME, hostile_batches, programs

LOW = np.array([-1.0, -np.inf, 0.1, -np.inf, 0.0])
HIGH = np.array([0.3, 0.5, np.inf, np.inf, 6.0])


def clipped(seed: int = 0) -> Network:
    """Bounds of all kinds in the first layer, the same for all in the second."""
    rng = np.random.default_rng(seed)
    nodes = [
        Affine(0, Dense(rng.normal(size=(5, 2))), rng.normal(size=5), "a.weight", "a.bias"),
        Clip(1, LOW, HIGH, (5,)),
        Affine(2, Dense(rng.normal(size=(3, 5))), rng.normal(size=3), "b.weight", "b.bias"),
        Clip(3, -0.5, 0.75, (3,)),
        Affine(4, Dense(rng.normal(size=(2, 3))), None, "c.weight"),
    ]
    return Network.from_nodes(nodes, (2,))


def by_definition(net: Network, X: np.ndarray) -> np.ndarray:
    value = X
    for node in net.program:
        if isinstance(node, Affine):
            value = node.operator.apply(value) + (0.0 if node.offset is None else node.offset)
        else:
            assert isinstance(node, Clip)
            value = np.clip(value, node.low, node.high)
    return value


def test_evaluation_is_that_of_numpy_bit_for_bit() -> None:
    net = clipped()
    X = np.random.default_rng(1).normal(size=(200, 2)) * 3
    np.testing.assert_array_equal(net(X), by_definition(net, X))
    assert "clip" in net.architecture
    assert len(net.program) == 5


def test_the_sign_vector_has_both_bounds() -> None:
    net = Network.from_nodes([Clip(0, [-1.0, -np.inf], [2.0, 3.0], (2,))], (2,))
    X = [[-2.0, 0.0], [-1.0, 3.0], [0.0, 4.0], [2.0, 0.0], [5.0, 0.0]]
    assert net.signs(X).signs.tolist() == [
        [-1, 1, 1, 1],
        [0, 1, 1, 0],
        [1, 1, 1, -1],
        [1, 1, 0, 1],
        [1, 1, -1, 1],
    ]
    assert net.linear_entries.tolist() == [False, True, False, False]
    assert [place.columns for place in net.layout.places] == [slice(0, 2), slice(2, 4)]


def test_a_large_bound_costs_no_accuracy() -> None:
    """By way of the plain nodes the constant term would be lost beside 1e30."""
    nodes = [Affine(0, Dense(np.array([[1.0]])), np.array([0.1])), Clip(1, -1e30, 1e30, (1,))]
    net = Network.from_nodes(nodes, (1,))
    matrix, offset = net.affine_at([3.0])
    assert (matrix.item(), offset.item()) == (1.0, 0.1)
    assert net([[3.0]]).item() == 3.1
    assert net.affine_at([1e31]).offset.item() == 1e30


@given(net=programs(max_width=3, max_blocks=2, blocks=["clip"]), data=st.data())
@settings(max_examples=60)
def test_values_and_signs_are_those_of_fractions(net: Network, data: st.DataObject) -> None:
    X = data.draw(hostile_batches(net))
    balls = BallAlgebra(EXACT)
    with balls.working():
        found = all_values(net.layout, balls.take(X), balls)
    with np.errstate(all="ignore"):
        bounded = all_values(net.layout, BOUNDED.take(X), BOUNDED)
    signs = net.signs(X).signs
    for row, x in enumerate(X):
        truth = fraction_values(net, x)
        assert signs[row].tolist() == fraction_signs(net, x).tolist()
        for ball, bound, values in zip(found, bounded, truth, strict=True):
            for b, v, e, t in zip(ball[row], bound.value[row], bound.error[row], values, strict=True):
                man, exp = b.mid().man_exp()
                assert b.is_exact()
                assert Fraction(int(man)) * Fraction(2) ** int(exp) == t
                assert not np.isfinite(e) or abs(Fraction(float(v)) - t) <= Fraction(float(e))


@given(net=programs(st.just(2), max_width=2, max_blocks=2, styles=TAME, blocks=["clip", "clip", "act"]))
@settings(max_examples=40)
def test_regions_and_maps_are_those_of_fractions(net: Network) -> None:
    box = Box.cube(2, -2.0, 2.0)
    truth = fraction_regions(net, *box.halfspaces())
    assert int(count_regions(net, box)) == len(truth)
    plain = Network.from_nodes(net.nodes, net.input_shape)
    assert fraction_regions(plain, *box.halfspaces()) == truth
    for signs in sorted(truth)[:6]:
        assert fraction_map(net, signs) == fraction_map(plain, signs)
    complex = regions(net, box)
    assert {tuple(row) for row in complex.sign_vectors.tolist()} == truth
    assert complex.verify().ok is not False


def test_functional_dimension_agrees_with_the_plain_nodes_and_with_torch() -> None:
    import torch

    net = clipped()
    X = np.random.default_rng(3).normal(size=(40, 2))
    module = net.to_torch()
    rows = [
        torch.cat([g.reshape(-1) for g in torch.autograd.grad(value, list(module.parameters()), retain_graph=True)])
        for value in module(torch.from_numpy(X)).reshape(-1)
    ]
    want = torch.stack(rows).numpy()
    np.testing.assert_allclose(jacobian(net, X), want, rtol=1e-9, atol=1e-9)
    assert functional_dimension(net, X).exact == np.linalg.matrix_rank(want)


@pytest.mark.parametrize("ending", ["npz", "safetensors", "pt", "onnx"])
def test_files_keep_clips(ending: str, tmp_path: Path) -> None:
    net = clipped()
    twice = Network.from_nodes([*net.program, Clip(5, [0.0, -1.0], [1.0, 1.0], (2,)), Clip(6, 0.0, np.inf, (2,))], (2,))
    for index, known in enumerate((net, twice)):
        path = tmp_path / f"{index}.{ending}"
        save(known, path)
        assert identical(load(path), known)
        assert not identical(load(path), Network.from_nodes(known.nodes, (2,)))
    assert not identical(net, Network.from_nodes([*net.program[:3], Clip(3, -0.5, 0.5, (3,)), net.program[4]], (2,)))


def test_onnx_says_clip(tmp_path: Path) -> None:
    save(clipped(), tmp_path / "net.onnx")
    onnx.checker.check_model(str(tmp_path / "net.onnx"), full_check=True)
    kinds = [node.op_type for node in onnx.load(tmp_path / "net.onnx").graph.node]
    assert kinds == ["Gemm", "Max", "Min", "Gemm", "Clip", "Gemm"]


def test_torch_and_onnxruntime_agree(tmp_path: Path) -> None:
    import torch

    ort = pytest.importorskip("onnxruntime")
    net = rounded(clipped())
    X = np.random.default_rng(2).normal(size=(30, 2)).astype(np.float32)
    save(net, tmp_path / "net.onnx")
    session = ort.InferenceSession(str(tmp_path / "net.onnx"), providers=["CPUExecutionProvider"])
    np.testing.assert_allclose(session.run(None, {"input": X})[0], net(X.astype(float)), rtol=1e-5, atol=1e-5)
    with torch.no_grad():
        found = net.to_torch()(torch.from_numpy(X.astype(float))).numpy()
    np.testing.assert_allclose(found, net(X.astype(float)), rtol=1e-12, atol=1e-13)


def test_other_parameters_keep_the_clips() -> None:
    net = clipped()
    moved = net.with_parameters({"a.bias": np.zeros(5)})
    assert [type(node) for node in moved.program] == [type(node) for node in net.program]
    X = np.random.default_rng(5).normal(size=(9, 2))
    np.testing.assert_array_equal(moved(X), by_definition(moved, X))


@pytest.mark.parametrize(
    ("low", "high"), [(1.0, 1.0), (2.0, 1.0), (np.nan, 1.0), (0.0, np.nan), (np.inf, np.inf), (-np.inf, -np.inf)]
)
def test_bounds_that_are_none(low: float, high: float) -> None:
    with pytest.raises(InputError, match="expected low < high"):
        Clip(0, np.array([0.0, low]), np.array([1.0, high]), (2,))


def test_bounds_of_another_shape() -> None:
    with pytest.raises(InputError, match=r"low: expected shape \(3,\)"):
        Clip(0, np.zeros(2), 1.0, (3,))


# -- graphs of others --------------------------------------------------------------------------------------------------


def graph(tmp_path: Path, nodes: list, constants: dict, opset: int = 13) -> Path:
    made = helper.make_graph(
        nodes,
        "test",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 3])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(np.asarray(a, dtype=np.float32), name) for name, a in constants.items()],
    )
    path = tmp_path / "graph.onnx"
    onnx.save(helper.make_model(made, opset_imports=[helper.make_opsetid("", opset)], ir_version=8), path)
    return path


def node(kind: str, inputs: str, output: str = "y", **options: float) -> onnx.NodeProto:
    return helper.make_node(kind, [name.replace("-", "") for name in inputs.split()], [output], output, **options)


GRAPHS = {
    "both": ([node("Clip", "x a b")], {"a": -0.5, "b": 0.25}, 13, [Clip]),
    "low": ([node("Clip", "x a")], {"a": -0.5}, 13, [Clip]),
    "high": ([node("Clip", "x - b")], {"b": 0.25}, 13, [Clip]),
    "relu": ([node("Clip", "x a")], {"a": 0.0}, 13, [PiecewiseLinear]),
    "attributes": ([node("Clip", "x", min=0.0, max=6.0)], {}, 6, [Clip]),
    "no_bound": ([node("Clip", "x", min=0.0, max=3.4028234663852886e38)], {}, 6, [PiecewiseLinear]),
    "none": ([node("Clip", "x", "h"), node("Relu", "h")], {}, 13, [PiecewiseLinear]),
    "max_min": ([node("Max", "x a", "h"), node("Min", "b h")], {"a": [-1.0, 0.0, 0.5], "b": 0.75}, 13, [Clip]),
    "max_of_three": ([node("Max", "a x b")], {"a": [-1.0, 0.0, 0.5], "b": 0.25}, 13, [Clip]),
    "empty": ([node("Clip", "x a b", "h"), node("Relu", "h")], {"a": 1.0, "b": -1.0}, 13, [Affine, PiecewiseLinear]),
    "disjoint": ([node("Min", "x a", "h"), node("Max", "h b")], {"a": 0.0, "b": [1.0, -1.0, 2.0]}, 13, None),
    "hard_sigmoid": ([node("HardSigmoid", "x", alpha=0.5, beta=0.25)], {}, 13, [Affine, Clip]),
}  # fmt: skip


@pytest.mark.parametrize("name", GRAPHS)
def test_graphs_agree_with_onnxruntime(name: str, tmp_path: Path) -> None:
    ort = pytest.importorskip("onnxruntime")
    nodes, constants, opset, kinds = GRAPHS[name]
    path = graph(tmp_path, nodes, constants, opset)
    X = np.concatenate([np.random.default_rng(0).normal(size=(20, 3)), [[-1.0, 0.0, 0.5]]]).astype(np.float32)
    session = ort.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    net = load(path)
    np.testing.assert_allclose(net(X.astype(float)), session.run(None, {"x": X})[0], rtol=1e-6, atol=1e-6)
    if kinds is not None:
        assert [type(n) for n in net.program] == kinds
    save(net, tmp_path / "again.onnx")
    assert identical(load(tmp_path / "again.onnx"), net)


def test_infinite_bounds_of_some_neurons_are_read(tmp_path: Path) -> None:
    path = graph(tmp_path, [node("Max", "x a", "h"), node("Min", "h b")], {"a": [-np.inf, 0, 0], "b": [1, np.inf, 2]})
    (clip,) = load(path).program
    assert isinstance(clip, Clip)
    assert clip.low.tolist() == [-np.inf, 0, 0]
    assert clip.high.tolist() == [1, np.inf, 2]


def test_what_it_means_in_plain_nodes() -> None:
    clip = Clip(0, np.array([0.1, -np.inf]), np.array([0.3, 1e300]), (2,))
    kinds = [type(node) for node in clip.meaning()]
    assert kinds == [Affine, PiecewiseLinear, Affine, Affine, PiecewiseLinear, Affine]
    net = Network.from_nodes([clip, Affine(1, Scale(2.0, (2,)))], (2,))
    for x in ([0.0, -1e308], [0.2, 1e301], [0.1, 1e300], [0.3, 0.0], [7.0, 5e-324]):
        plain = fraction_values(Network.from_nodes(net.nodes, (2,)), x)[-1]
        assert plain == fraction_values(net, x)[-1]
