"""Every format gives back the same program with the same bits, for every kind of network."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fiberscope.errors import InputError
from fiberscope.network.comparison import identical
from fiberscope.network.convolutions import Convolution, TransposedConvolution
from fiberscope.network.formats.float_types import narrowest, rounded
from fiberscope.network.io import load, save
from fiberscope.network.network import Network
from fiberscope.network.nodes import Add, Affine, Clip, Concat, Given, MaxPool, Node, PiecewiseLinear
from fiberscope.network.operators import Composition, Dense, Gather, Operator, Scale, Sparse
from fiberscope.network.to_torch import to_torch
from fiberscope.testing import CASES
from fiberscope.testing.strategies import chains

FORMATS = ("npz", "safetensors", "pt", "pth", "onnx")


def pooled() -> Network:
    """Max pooling with padding, dilation and rounded-up sizes; concat along every axis; sums of three values."""
    nodes: list[Node] = [
        MaxPool(0, (2, 5, 6), (3, 2), (2, 1), (1, 0, 1, 1), (1, 2), True),
        PiecewiseLinear(1, np.linspace(-1, 1, 30), (2, 3, 5)),
        Concat((1, 2, 1), ((2, 3, 5),) * 3, 0),
        Concat((2, 1), ((2, 3, 5), (2, 3, 5)), 1),
        Concat((2, 1), ((2, 3, 5), (2, 3, 5)), 2),
        Add((4, 5, 4), (2, 30)),
        Concat((6, 3), ((60,), (90,))),
        Affine(7, Scale(np.asarray(0.5), (150,))),
    ]
    return Network.from_nodes(nodes, (2, 5, 6))


def depthwise() -> Network:
    rng = np.random.default_rng(0)
    nodes: list[Node] = [
        Affine(0, Convolution(rng.normal(size=(6, 1, 3, 1)), (3, 5, 4), (2, 1), (0, 1, 2, 0), (1, 2), 3), None, "a"),
        Affine(1, Scale(rng.normal(size=(6, 1, 1)), (6, 3, 5)), rng.normal(size=(6, 1, 1)), "gamma", "beta"),
        PiecewiseLinear(2, np.zeros(()), (6, 3, 5)),
        Affine(3, Convolution(np.full((6, 1, 3, 5), 1 / 15), (6, 3, 5), groups=6)),
        Affine(4, Dense(rng.normal(size=(2, 6)), (6, 1, 1)), np.zeros(2), "fc.weight", "fc.bias"),
    ]
    return Network.from_nodes(nodes, (3, 5, 4))


def odd() -> Network:
    """Zeros of either sign, explicit zeros in a sparse map, tiny and huge numbers, a name used twice, one empty."""
    sparse = Sparse(np.eye(3)).with_coefficients(np.array([0.0, -0.0, 5e-324]))
    composed = Composition([sparse, Scale(np.array([1e300, -0.0, 1.0]), (3,)), Dense(np.full((2, 3), 1 / 3))])
    nodes: list[Node] = [
        Affine(0, sparse, np.full(3, -0.0), "sparse", "zeros"),
        Affine(1, sparse, np.zeros(3), "sparse", "zeros"),
        Affine(2, composed, np.ones(()), "composed", ""),
        Affine(3, Composition([Dense(np.eye(2))]), None, None, None),
        PiecewiseLinear(4, np.asarray(-0.0), (2,)),
        Affine(5, Dense(np.ones((1, 2))), None, "__metadata__", None),
        Affine(6, Scale(np.ones(1), (1,)), np.ones(1), "fiberscope", "constant.0"),
        Affine(7, Scale(np.ones(1), (1,)), np.ones(1), "file", "a/../b"),
    ]
    return Network.from_nodes(nodes, (3,))


EXTRA: dict[str, Callable[[], Network]] = {"pooled": pooled, "depthwise": depthwise, "odd": odd}
ALL = {**CASES, **EXTRA}


@pytest.mark.parametrize("ending", FORMATS)
@pytest.mark.parametrize("name", ALL)
def test_round_trips_are_bit_identical(name: str, ending: str, tmp_path: Path) -> None:
    net = ALL[name]()
    path = tmp_path / f"net.{ending}"
    save(net, path)
    assert identical(load(path), net)
    assert os.listdir(tmp_path) == [path.name]
    if ending == "onnx":
        onnx.checker.check_model(str(path), full_check=True)


@pytest.mark.parametrize("name", ALL)
def test_operators_keep_their_input_shapes(name: str, tmp_path: Path) -> None:
    net = ALL[name]()
    for ending in FORMATS:
        save(net, tmp_path / f"net.{ending}")
        back = load(tmp_path / f"net.{ending}")
        for a, b in zip(net.nodes, back.nodes, strict=True):
            if isinstance(a, Affine) and isinstance(b, Affine):
                assert a.operator.in_shape == b.operator.in_shape


@given(net=chains(max_width=3, max_hidden=2), ending=st.sampled_from(FORMATS))
@settings(max_examples=60)
def test_round_trips_of_random_chains(net: Network, ending: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("chain") / f"net.{ending}"
    save(net, path)
    assert identical(load(path), net)


def affine(source: int, operator: Operator, bias: np.ndarray | None, names: tuple[str | None, ...]) -> Affine:
    """A name for a bias only where there is one."""
    return Affine(source, operator, bias, names[0], None if bias is None else names[1])


KINDS = (
    "dense",
    "conv",
    "transposed",
    "scale",
    "sparse",
    "gather",
    "compose",
    "relu",
    "add",
    "concat",
    "pool",
    "clip",
    "largest",
)


@st.composite
def programs(draw: st.DrawFn) -> Network:
    """Random programs on images: every kind of node and operator, wired at random."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    shape = (draw(st.integers(1, 2)), draw(st.integers(2, 4)), draw(st.integers(2, 4)))
    nodes: list[Given] = []
    shapes: list[tuple[int, ...]] = [shape]
    for _ in range(draw(st.integers(1, 6))):
        source = draw(st.integers(0, len(nodes)))
        now = shapes[source]
        size = int(np.prod(now))
        names = draw(st.sampled_from([(None, None), ("w", None), ("v.w", "v.b")]))
        names = tuple(None if n is None else f"{n}{len(nodes)}" for n in names)
        kind = draw(st.sampled_from(KINDS))
        if kind in ("conv", "transposed", "pool") and len(now) != 3:
            kind = "dense"
        if kind == "conv":
            kernel = rng.normal(size=(2, now[0], 2, 1))
            conv = Convolution(kernel, now, (1, 2), (1, 0, 0, 1))  # type: ignore[arg-type]
            bias = draw(st.sampled_from([None, (), (2, 1, 1), conv.out_shape]))
            nodes.append(affine(source, conv, None if bias is None else rng.normal(size=bias), names))
        elif kind == "transposed":
            spread = TransposedConvolution(rng.normal(size=(now[0], 2, 2, 2)), now, (1, 2), (1, 0, 0, -1))
            bias = draw(st.sampled_from([None, (), (2, 1, 1), spread.out_shape]))
            nodes.append(affine(source, spread, None if bias is None else rng.normal(size=bias), names))
        elif kind == "gather":
            index = rng.integers(draw(st.sampled_from([-1, 0])), size, (2, 3))
            bias = draw(st.sampled_from([None, (3,)]))
            nodes.append(Affine(source, Gather(index, now), None if bias is None else rng.normal(size=bias)))
        elif kind == "pool":
            nodes.append(MaxPool(source, now, (2, 1), (1, 2), (1, 0, 0, 0), ceil=draw(st.booleans())))
        elif kind == "dense":
            bias = draw(st.sampled_from([None, (), (3,)]))
            operator = Dense(rng.normal(size=(3, size)), now)
            nodes.append(affine(source, operator, None if bias is None else rng.normal(size=bias), names))
        elif kind == "scale":
            nodes.append(Affine(source, Scale(rng.normal(size=now), now), rng.normal(size=now[-1:]), *names))
        elif kind == "sparse":
            matrix = rng.normal(size=(4, size)) * (rng.random((4, size)) < 0.5)
            nodes.append(Affine(source, Sparse(matrix, now, (2, 2)), rng.normal(size=(2, 1)), *names))
        elif kind == "compose":
            parts = [
                Gather(rng.integers(-1, size, now), now),
                Scale(rng.normal(), now),
                Dense(rng.normal(size=(2, size)), now),
                Scale(rng.normal(size=2), (2,)),
            ]
            nodes.append(Affine(source, Composition(parts), rng.normal(size=2), *names))
        elif kind == "relu":
            nodes.append(PiecewiseLinear(source, draw(st.sampled_from([np.zeros(()), rng.normal(size=now)])), now))
        elif kind == "clip":
            high = draw(st.sampled_from([0.5, np.inf, np.linspace(0, 1, size).reshape(now)]))
            nodes.append(Clip(source, draw(st.sampled_from([-np.inf, -0.25])), high, now))
        elif kind == "largest":
            table = np.array([rng.permutation(np.arange(-1, size))[: min(3, size + 1)] for _ in range(4)])
            table[:, 0] = np.where((table < 0).all(axis=1), 0, table[:, 0])
            nodes.append(MaxPool.over(source, now, table))
        elif kind == "add":
            nodes.append(Add((source,) * draw(st.integers(2, 3)), now))
        else:
            axis = draw(st.integers(0, len(now) - 1))
            nodes.append(Concat((source, source), (now, now), axis))
        shapes.append(nodes[-1].shape)
    return Network.from_nodes(nodes, shape)


def needed(net: Network) -> bool:
    wanted = {len(net.program)}
    for index in range(len(net.program), 0, -1):
        if index in wanted:
            wanted |= set(net.program[index - 1].sources)
    return wanted >= set(range(1, len(net.program) + 1))


@given(net=programs())
@settings(max_examples=80)
def test_round_trips_of_random_programs(net: Network, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("program")
    for ending in ("npz", "safetensors", "pt", "onnx"):
        save(net, folder / f"net.{ending}")
        back = load(folder / f"net.{ending}")
        # ONNX is read from its output backwards, so that nodes without effect are left out.
        assert identical(back, net) or (ending == "onnx" and not needed(net))
        X = np.random.default_rng(0).normal(size=(3, net.in_size))
        np.testing.assert_array_equal(back(X), net(X))
    onnx.checker.check_model(str(folder / "net.onnx"), full_check=True)


@given(net=programs())
@settings(max_examples=60)
def test_random_programs_in_torch(net: Network) -> None:
    module = to_torch(net)
    X = np.random.default_rng(0).normal(size=(3, net.in_size))
    with torch.no_grad():
        got = module(torch.from_numpy(X)).numpy()
    np.testing.assert_allclose(got, net(X), rtol=1e-10, atol=1e-10 * (1 + np.abs(net(X)).max()))


@pytest.mark.parametrize("name", [name for name in ALL if name != "odd"])
def test_networks_in_torch(name: str) -> None:
    net = ALL[name]()
    module = to_torch(net)
    X = np.random.default_rng(1).normal(size=(6, *net.input_shape))
    with torch.no_grad():
        np.testing.assert_allclose(module(torch.from_numpy(X)).numpy(), net(X), rtol=1e-12, atol=1e-13)
    assert all(p.dtype == torch.float64 for p in module.parameters())
    trained = sum(p.numel() for p in module.parameters() if p.requires_grad)
    assert trained == net.num_parameters


@pytest.mark.parametrize("name", [name for name, make in CASES.items() if make().is_chain])
def test_chains_become_sequential_and_come_back(name: str) -> None:
    net = CASES[name]()
    module = to_torch(net)
    assert isinstance(module, torch.nn.Sequential)
    if name != "mixed_linear":  # slopes per neuron are no layer of torch
        assert identical(load(module), net)


def test_images_are_flattened_before_a_chain() -> None:
    net = Network.from_nodes(Network.random((6, 3, 1), 0).nodes, (2, 3))
    module = to_torch(net)
    X = np.random.default_rng(0).normal(size=(4, 2, 3))
    np.testing.assert_allclose(module(torch.from_numpy(X)).detach().numpy(), net(X), rtol=1e-14)


@pytest.mark.parametrize("ending", FORMATS)
def test_rounding_on_request(ending: str, tmp_path: Path) -> None:
    net = CASES["residual"]()
    path = tmp_path / f"net.{ending}"
    save(net, path, dtype="float32")
    assert identical(load(path), rounded(net)) and not identical(rounded(net), net)
    save(rounded(net), path)
    assert narrowest(rounded(net)) == "float32"
    assert identical(load(path), rounded(net))


@pytest.mark.parametrize("ending", FORMATS)
def test_the_same_network_gives_the_same_bytes(ending: str, tmp_path: Path) -> None:
    first, second = tmp_path / f"a.{ending}", tmp_path / f"b.{ending}"
    save(CASES["residual"](), first)
    save(CASES["residual"](), second)
    assert first.read_bytes() == second.read_bytes()


def test_files_hold_what_others_expect(tmp_path: Path) -> None:
    """Parameters stand under their own names, in every format's usual place."""
    net = Network.random((2, 3, 1), 0)
    names = {"0.weight", "0.bias", "2.weight", "2.bias"}
    save(net, tmp_path / "net.npz")
    with np.load(tmp_path / "net.npz") as archive:
        assert set(archive.files) == names | {"fiberscope"}
    save(net, tmp_path / "net.pt")
    state = torch.load(tmp_path / "net.pt", weights_only=True)["state_dict"]
    to_torch(net).load_state_dict(state)
    save(net, tmp_path / "net.onnx")
    assert {t.name for t in onnx.load(tmp_path / "net.onnx").graph.initializer} == names


def test_saving_over_a_file_replaces_it_whole(tmp_path: Path) -> None:
    path = tmp_path / "net.npz"
    save(CASES["chain"](), path)
    before = path.read_bytes()
    with pytest.raises(InputError):
        save(Network([[[1e300]]], [[0.0]]), path, dtype="float32")
    assert path.read_bytes() == before and os.listdir(tmp_path) == ["net.npz"]
    save(CASES["deep"](), path)
    assert identical(load(path), CASES["deep"]())


def test_a_failing_write_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(InputError, match="cannot be written"):
        save(CASES["chain"](), tmp_path / "net.npz")
    assert os.listdir(tmp_path) == []


def test_loading_a_network_gives_it_back() -> None:
    net = CASES["chain"]()
    assert load(net) is net
    assert load(net, (1, 2)).input_shape == (1, 2)
