"""Refusals that say which of two facts they are, and models that are cut before a head that is not piecewise linear."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper
from torch import Tensor, nn
from torch.nn import functional as F

from fiberscope.errors import FiberscopeError, InputError, UnsupportedModelError
from fiberscope.network.comparison import identical
from fiberscope.network.formats import nonlinear
from fiberscope.network.formats.onnx.operators import HANDLERS
from fiberscope.network.formats.onnx.quantisers import QUANTISERS
from fiberscope.network.formats.torch.functions import FUNCTIONS, METHODS
from fiberscope.network.formats.torch.layer_kinds import LAYERS
from fiberscope.network.io import load

RNG = np.random.default_rng(0)
W, B, V = RNG.normal(size=(5, 4)), RNG.normal(size=5), RNG.normal(size=(3, 5))
X = RNG.normal(size=(10, 4))


def refused(source: Any, message: str, kind: type[FiberscopeError] = UnsupportedModelError, **options: Any) -> None:
    with pytest.raises(kind, match=message) as caught:
        load(source, **options)
    assert "\n" not in str(caught.value)


def model(path: Path, *nodes: Any, outputs: tuple[str, ...] = ("y",)) -> Path:
    constants = {"w": W.T.copy(), "b": B, "v": V.T.copy()}
    graph = helper.make_graph(
        list(nodes),
        "test",
        [helper.make_tensor_value_info("x", TensorProto.DOUBLE, ["N", 4])],
        [helper.make_tensor_value_info(name, TensorProto.DOUBLE, None) for name in outputs],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


def node(kind: str, inputs: str, output: str, name: str = "", **options: Any) -> Any:
    return helper.make_node(kind, inputs.split(), [output], name, **options)


HIDDEN = (node("Gemm", "x w b", "h", "first"), node("Relu", "h", "r", "relu"), node("MatMul", "r v", "s", "last"))
LOGITS = np.maximum(X @ W.T + B, 0) @ V.T


# -- which of the two ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["Softmax", "Sigmoid", "Tanh", "Exp", "Elu", "LayerNormalization", "Gelu", "ReduceL2"])
def test_curved_operators_of_onnx(kind: str, tmp_path: Path) -> None:
    path = model(tmp_path / "net.onnx", *HIDDEN, node(kind, "s", "y", "head"))
    refused(path, rf"node 'head' \({kind}\): it is not piecewise linear; until='last' \(--until\) leaves it off")


@pytest.mark.parametrize("kind", ["Sign", "Floor", "ArgMax", "Hardmax"])
def test_operators_of_onnx_that_jump(kind: str, tmp_path: Path) -> None:
    path = model(tmp_path / "net.onnx", *HIDDEN, node(kind, "s", "y"))
    refused(path, f"{kind}.: it is not a continuous piecewise linear function: its values jump; until='last'")


@pytest.mark.parametrize("kind", sorted(QUANTISERS))
def test_quantisers_of_computed_values_are_no_network(kind: str, tmp_path: Path) -> None:
    path = model(tmp_path / "net.onnx", *HIDDEN, node(kind, "s b", "y"))
    refused(path, f"{kind}.: it is not a continuous piecewise linear function: its values jump; until='last'")


@pytest.mark.parametrize("kind", ["Einsum", "ScatterND", "GridSample", "Nonsense"])
def test_operators_of_onnx_that_are_not_built_yet(kind: str, tmp_path: Path) -> None:
    path = model(tmp_path / "net.onnx", *HIDDEN, node(kind, "s", "y"))
    refused(path, f"{kind}.: it is not supported yet$")


@pytest.mark.parametrize("layer", [nn.Tanh(), nn.Softmax(1), nn.LogSoftmax(1), nn.GELU(), nn.LayerNorm(3), nn.GLU()])
def test_curved_layers_of_torch(layer: nn.Module) -> None:
    module = nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 3), layer)
    advice = "" if list(layer.parameters()) else r"; until='2' \(--until\) leaves it off"
    refused(module, rf"node '_3' .*{type(layer).__name__}\): it is not piecewise linear{advice}$")


@pytest.mark.parametrize(
    "function",
    [torch.tanh, torch.sigmoid, F.softmax, F.gelu, torch.exp, torch.sigmoid_, lambda x: x**2, F.silu, torch.sin],
)
def test_curved_functions_of_torch(function: Any) -> None:
    class Headed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = nn.Linear(4, 3)

        def forward(self, x: Tensor) -> Tensor:
            return function(self.body(x))  # type: ignore[no-any-return]

    refused(Headed(), r"it is not piecewise linear; until='body'")


@pytest.mark.parametrize("layer", [nn.ConvTranspose3d(1, 1, 2), nn.Fold(2, 1)])
def test_layers_of_torch_that_are_not_built_yet(layer: nn.Module) -> None:
    refused(nn.Sequential(nn.Linear(4, 3), layer), "it is not supported yet$")


def test_the_table_names_nothing_that_is_read() -> None:
    known = {*HANDLERS} - {*QUANTISERS}  # those are read only where the rounding is accounted for
    known |= {*(kind.__name__ for kind in LAYERS), *METHODS}
    known |= {function.__name__ for function in FUNCTIONS if hasattr(function, "__name__")}
    assert not {nonlinear.plain_name(name) for name in known} & nonlinear.NOT_PIECEWISE_LINEAR


def test_every_activation_of_torch_is_told_apart() -> None:
    """What torch calls an activation is read, or known to be curved, or piecewise linear and still to be built."""
    names = {name for name in nn.modules.activation.__all__ if isinstance(getattr(nn, name, None), type)}
    read = {kind.__name__ for kind in LAYERS}
    later = {"PReLU", "RReLU", "ReLU6", "Hardtanh", "Hardsigmoid", "Softshrink", "Threshold", "Hardshrink"}
    for name in names - read - later:
        assert nonlinear.plain_name(name) in nonlinear.NOT_PIECEWISE_LINEAR, name


def test_advice_is_given_for_heads_alone(tmp_path: Path) -> None:
    tanh = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3))
    refused(tanh, "it is not piecewise linear$")
    middle = (node("Gemm", "x w b", "h", "first"), node("Tanh", "h", "r"), node("MatMul", "r v", "y", "last"))
    refused(model(tmp_path / "net.onnx", *middle), "Tanh.: it is not piecewise linear$")
    refused(model(tmp_path / "net.onnx", node("Sigmoid", "x", "y")), "it is not piecewise linear$")
    beside = (*HIDDEN, node("Sigmoid", "s", "t"), node("Add", "s t", "y"))
    refused(model(tmp_path / "net.onnx", *beside), "leaves it off$")  # what is left is s itself
    gate = (*HIDDEN, node("Sigmoid", "s", "t"), node("MatMul", "r v", "u"), node("Add", "u t", "y"))
    refused(model(tmp_path / "net.onnx", *gate), "it is not piecewise linear$")
    product = (*HIDDEN, node("Mul", "s s", "y"))
    refused(model(tmp_path / "net.onnx", *product), "a product of computed values is not piecewise linear")


# -- until ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("until", ["last", "s"])
def test_the_named_node_is_the_last_one_kept(until: str, tmp_path: Path) -> None:
    path = model(tmp_path / "net.onnx", *HIDDEN, node("Softmax", "s", "y", "head"))
    np.testing.assert_allclose(load(path, until=until)(X), LOGITS, rtol=1e-12)
    np.testing.assert_allclose(load(path, until="relu")(X), np.maximum(X @ W.T + B, 0), rtol=1e-12)
    np.testing.assert_allclose(load(path, until="h")(X), X @ W.T + B, rtol=1e-12)
    refused(path, "node 'head' .Softmax.: it is not", until="head")


def test_one_of_several_outputs_may_be_named(tmp_path: Path) -> None:
    path = model(tmp_path / "net.onnx", *HIDDEN, node("Softmax", "s", "y", "head"), outputs=("y", "s"))
    refused(path, "expected a graph with one output, got 2")
    np.testing.assert_allclose(load(path, until="s")(X), LOGITS, rtol=1e-12)


def test_names_that_are_not_there(tmp_path: Path) -> None:
    path = model(tmp_path / "net.onnx", *HIDDEN, node("Softmax", "s", "y", "head"))
    message = r"until: expected a node such as first, relu, last, head, got 'lats' \(closest: last\)"
    refused(path, message, InputError, until="lats")
    for name in ("x", "w"):
        refused(path, "until: expected a node", InputError, until=name)
    clash = model(tmp_path / "net.onnx", node("Gemm", "x w b", "h", "a"), node("Relu", "h", "a", "r"), outputs=("a",))
    refused(clash, "until: 'a' stands for several nodes, which give a, h", InputError, until="a")


class Headed(nn.Module):
    """A block that is traced into, a layer that is used twice, an operation in place behind the cut, and a head."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 4))
        self.act = nn.ReLU()
        self.last = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = self.act(self.body(x))
        scores = self.act(self.last(x))
        scores += 1
        return F.softmax(scores, dim=1)


def test_submodules_and_traced_nodes_of_torch() -> None:
    torch.manual_seed(0)
    module = Headed().double()
    x = torch.from_numpy(X)
    body = module.body(x)
    last = module.last(torch.relu(body))
    with torch.no_grad():
        want = {
            "body": body,
            "body.0": module.body[0](x),
            "body.2": body,
            "act": torch.relu(body),
            "last": last,
            "act_1": torch.relu(last),
            "iadd": torch.relu(last) + 1,
        }
    for until, values in want.items():
        np.testing.assert_allclose(load(module, until=until)(X), values.detach().numpy(), rtol=1e-10)
    twice = nn.Sequential(nn.Sequential(nn.Linear(4, 4)))
    twice.append(twice[0])
    message = "until: '0' stands for several nodes, expected one name such as _0_0, _0_1"
    refused(twice, message, InputError, until="0")
    assert load(twice, until="_0_0").num_parameters == load(twice, until="_0_1").num_parameters == 20


def test_what_the_advice_names_is_taken(tmp_path: Path) -> None:
    module = Headed().double()
    with pytest.raises(UnsupportedModelError) as caught:
        load(module)
    name = str(caught.value).split("until='")[1].split("'")[0]
    assert load(module, until=name).out_size == 3
    refused(
        module,
        r"until: expected a submodule or a traced node such as .*, got 'lsat' \(closest: last\)",
        InputError,
        until="lsat",
    )
    torch.save(module.state_dict(), tmp_path / "net.pt")
    found = load(tmp_path / "net.pt", module=Headed, until="last")
    assert identical(found, load(module, until="last"))
