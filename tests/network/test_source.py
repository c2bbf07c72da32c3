"""A network knows the precision of the numbers it came from, and the file."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from onnx import helper, numpy_helper
from safetensors.torch import save_file
from sklearn.neural_network import MLPRegressor
from torch import nn

from fiberscope.errors import InputError
from fiberscope.network.action.chain import permute, rescale
from fiberscope.network.formats.program import describe, restore
from fiberscope.network.io import load, save
from fiberscope.network.network import Network
from fiberscope.network.source import MEMORY, Source, coarsest

KINDS = {"float64": torch.float64, "float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}
ENDINGS = (".npz", ".safetensors", ".pt", ".onnx")


def module(dtype: torch.dtype = torch.float32) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1)).to(dtype)


def test_the_coarsest_precision_counts() -> None:
    assert coarsest(["float64", "float32"]) == "float32"
    assert coarsest(["float16", "bfloat16"]) == "bfloat16"
    assert coarsest(["int64", ""]) == coarsest([]) == "float64"
    with pytest.raises(InputError, match="precision: expected one of"):
        Source("float8")


@pytest.mark.parametrize("kind", KINDS)
def test_modules_and_state_dicts_keep_their_type(kind: str, tmp_path: Path) -> None:
    made = module(KINDS[kind])
    assert load(made).source == Source(kind)
    torch.save(made.state_dict(), tmp_path / "a.pt")
    save_file(made.state_dict(), tmp_path / "a.safetensors")
    for name in ("a.pt", "a.safetensors"):
        found = load(tmp_path / name, activation="relu")
        assert found.source.precision == kind
        assert found.source.path == tmp_path / name
        assert found.source.sha256 == hashlib.sha256((tmp_path / name).read_bytes()).hexdigest()
        assert all(
            np.array_equal(value, tensor.detach().double().numpy())
            for value, tensor in zip(found.parameters.values(), made.parameters(), strict=True)
        )


def test_one_coarse_tensor_is_enough() -> None:
    made = module(torch.float64)
    made[2].bias.data = made[2].bias.data.float()
    with torch.no_grad():
        assert load(made).source.precision == "float32"


def test_statistics_of_batch_normalisation_count() -> None:
    norm = nn.BatchNorm1d(2).double()
    norm.running_var = norm.running_var.half()  # type: ignore[union-attr]
    assert load(norm, (2,)).source.precision == "float16"


@pytest.mark.parametrize("kind", [np.float16, np.float32, np.float64])
def test_arrays(kind: Any, tmp_path: Path) -> None:
    name = np.dtype(kind).name
    weights = [np.ones((3, 2), kind), np.ones((1, 3), kind)]
    net = Network(weights, [np.zeros(3, kind), np.zeros(1, kind)])
    assert net.source == Source(name)
    assert permute(net, [[1, 0, 2]]).source == rescale(net, [[3.0, 1.0, 1.0]]).source == net.source
    np.savez(tmp_path / "a.npz", **{"0.weight": weights[0], "2.weight": weights[1]})
    assert load(tmp_path / "a.npz", activation="relu").source.precision == name
    assert Network([[[1.0]]], [[0.0]]).source == MEMORY


@pytest.mark.parametrize("kind", [np.float16, np.float32, np.float64])
def test_graphs(kind: Any, tmp_path: Path) -> None:
    element = helper.np_dtype_to_tensor_dtype(np.dtype(kind))
    graph = helper.make_graph(
        [helper.make_node("Gemm", ["x", "w"], ["y"], transB=1)],
        "g",
        [helper.make_tensor_value_info("x", element, [1, 2])],
        [helper.make_tensor_value_info("y", element, [1, 1])],
        [numpy_helper.from_array(np.ones((1, 2), kind), "w")],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)]), tmp_path / "a.onnx")
    assert load(tmp_path / "a.onnx").source.precision == np.dtype(kind).name


def test_scikit_learn_trains_in_the_type_of_its_data() -> None:
    for kind in (np.float32, np.float64):
        model = MLPRegressor(hidden_layer_sizes=(3,)).partial_fit(
            np.eye(2, dtype=kind), np.array([0.0, 1.0], dtype=kind)
        )
        assert load(model).source.precision == np.dtype(kind).name


@pytest.mark.parametrize("ending", ENDINGS)
def test_a_saved_network_keeps_its_precision(ending: str, tmp_path: Path) -> None:
    """Numbers that fit into float32 are stored so, which rounds nothing."""
    exact = Network([[[0.5]]], [[1.0]])
    save(exact, tmp_path / f"a{ending}")
    assert load(tmp_path / f"a{ending}").source.precision == "float64"
    save(load(module(torch.float16)), tmp_path / f"b{ending}")
    assert load(tmp_path / f"b{ending}").source.precision == "float16"
    save(Network([[[0.1]]], [[1.0]]), tmp_path / f"c{ending}", dtype="float32")
    assert load(tmp_path / f"c{ending}").source.precision == "float32"


def test_an_unknown_precision_in_a_file_is_refused() -> None:
    made = describe(Network([[[1.0]]], [[0.5]]), "float32")
    text = made.text.replace('"float64"', '"float7"')
    with pytest.raises(InputError, match="precision: expected one of"):
        restore(text, made.parameters)


def test_new_parameters_bring_their_own_precision() -> None:
    net = load(module())
    some = {"0.weight": np.ones((3, 2))}
    assert net.with_parameters(some).source.precision == "float32"
    every = {name: value + 0.0 for name, value in net.parameters.items()}
    assert net.with_parameters(every).source.precision == "float64"
    assert net.as_mlp() is net
    assert net.composed.source.precision == "float32"
