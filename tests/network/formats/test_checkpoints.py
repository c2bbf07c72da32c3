"""Files of numbers without an architecture: what the caller says makes them a function, and nothing is guessed."""

from __future__ import annotations

import itertools
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from fiberscope.errors import FiberscopeError, InputError, UnsupportedModelError
from fiberscope.network.comparison import identical
from fiberscope.network.formats.request import UnneededError
from fiberscope.network.io import load, load_many, save
from fiberscope.network.network import Network
from fiberscope.network.nodes import PiecewiseLinear

X = np.random.default_rng(0).normal(size=(20, 4))
ENDINGS = ("pt", "pth", "ckpt", "safetensors", "npz")
NO_ARCHITECTURE = "holds numbers and no architecture, so it is not a function yet; say activation='relu'.*module=.*save"


class Residual(nn.Module):
    """Its state dict looks like that of a chain."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.c = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        x = x + torch.relu(self.a(x))
        return self.c(x + torch.relu(self.b(x)))  # type: ignore[no-any-return]


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 4)
        self.b.weight = self.a.weight

    def forward(self, x: Tensor) -> Tensor:
        return self.b(torch.relu(self.a(x)))  # type: ignore[no-any-return]


def chain(activation: nn.Module | None = None) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 5), activation or nn.ReLU(), nn.Linear(5, 3))


def cnn() -> nn.Sequential:
    torch.manual_seed(1)
    return nn.Sequential(nn.Conv2d(1, 2, 2), nn.BatchNorm2d(2), nn.ReLU(), nn.Flatten(), nn.Linear(8, 2)).eval()


def stored(state: dict[str, Any], path: Path) -> Path:
    if path.suffix == ".npz":
        np.savez(path, **{name: tensor.numpy() for name, tensor in state.items()})
    elif path.suffix == ".safetensors":
        save_file({name: tensor.clone() for name, tensor in state.items()}, path)
    else:
        torch.save(state, path)
    return path


def refused(message: str, path: Any, kind: type[FiberscopeError] = InputError, **options: Any) -> None:
    with pytest.raises(kind, match=message) as caught:
        load(path, **options)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize("make", [chain, Residual, Tied, cnn, lambda: chain(nn.Tanh()), lambda: nn.Linear(4, 1)])
def test_no_architecture_is_guessed(make: Callable[[], nn.Module], ending: str, tmp_path: Path) -> None:
    refused(NO_ARCHITECTURE, stored(make().state_dict(), tmp_path / f"net.{ending}"))


@pytest.mark.parametrize("ending", ENDINGS)
def test_the_activation_that_is_said_is_taken(ending: str, tmp_path: Path) -> None:
    path = stored(chain().state_dict(), tmp_path / f"net.{ending}")
    assert identical(load(path, activation="relu"), load(chain()))
    leaky = load(path, activation="leaky_relu", slope=0.25)
    assert identical(leaky, load(chain(nn.LeakyReLU(0.25))))
    middle = load(path, activation="leaky_relu").nodes[1]
    assert isinstance(middle, PiecewiseLinear) and (middle.slopes == 0.01).all()


@pytest.mark.parametrize("name", ["tanh", "sigmoid", "gelu", "silu", "softplus", "elu", "Tanh", "hard_swish"])
def test_curved_activations_are_refused_as_such(name: str, tmp_path: Path) -> None:
    path = stored(chain().state_dict(), tmp_path / "net.pt")
    refused(f"activation '{name}' is not piecewise linear", path, UnsupportedModelError, activation=name)


@pytest.mark.parametrize("name", ["ReLU", "rleu", "", 3])
def test_unknown_activations(name: Any, tmp_path: Path) -> None:
    refused("activation: expected", stored(chain().state_dict(), tmp_path / "net.pt"), activation=name)
    refused("slope", tmp_path / "net.pt", activation="leaky_relu", slope=float("nan"))


@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize(("make", "shape"), [(chain, None), (Residual, None), (Tied, None), (cnn, (1, 3, 3))])
def test_a_module_takes_the_numbers(
    make: Callable[[], nn.Module], shape: tuple[int, ...] | None, ending: str, tmp_path: Path
) -> None:
    torch.manual_seed(7)
    trained = make().eval()
    with torch.no_grad():
        for tensor in itertools.chain(trained.parameters(), trained.buffers()):
            if tensor.is_floating_point():
                tensor.copy_(torch.rand_like(tensor) + 0.5)
    path = stored(trained.state_dict(), tmp_path / f"net.{ending}")
    want = load(trained, shape)
    module = make()
    before = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    for given in (module, make):
        found = load(path, shape, module=given)
        assert identical(found, want) and found.source.path == path
    assert all(torch.equal(tensor, before[name]) for name, tensor in module.state_dict().items())


@pytest.mark.parametrize("kind", [torch.float64, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("ending", ["pt", "safetensors"])
def test_numbers_keep_their_precision(kind: torch.dtype, ending: str, tmp_path: Path) -> None:
    """The module is float32; a float64 weight such as 0.1 must not be rounded on the way."""
    state = {name: torch.rand_like(tensor, dtype=kind) for name, tensor in chain().state_dict().items()}
    path = stored(state, tmp_path / f"net.{ending}")
    for options in ({"module": chain}, {"activation": "relu"}):
        net = load(path, **options)  # type: ignore[arg-type]
        for name, tensor in state.items():
            np.testing.assert_array_equal(net.parameters[name], tensor.double().numpy())
        assert net.source.precision == str(kind).removeprefix("torch.")


def test_a_module_that_does_not_fit(tmp_path: Path) -> None:
    path = stored(chain().state_dict(), tmp_path / "net.pt")
    refused("the module fits '0', '2' in the file; choose one by key=", path, module=nn.Linear(4, 3))
    refused("state dict does not fit Bilinear .*Unexpected key", path, module=nn.Bilinear(1, 1, 1, bias=False))
    refused("size mismatch", path, module=nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 3)))
    refused("expected a torch module or a function .* got int", path, module=3)
    refused("expected a torch module or a function .* got one that gives a list", path, module=list)
    refused(r"it cannot be made \(TypeError: .*missing 2 required", path, module=nn.Linear)
    refused("activation: expected none beside a module", path, module=chain, activation="relu")
    refused("node '_1' .torch.nn.Tanh.: it is not piecewise", path, UnsupportedModelError, module=chain(nn.Tanh()))
    state = {name: tensor.clone() for name, tensor in Tied().state_dict().items()}
    state["b.weight"] += 1
    refused("b.weight and a.weight are one parameter", stored(state, path), module=Tied)


# -- checkpoints ----------------------------------------------------------------------------------------------------


def checkpoints() -> dict[str, Any]:
    module = chain()
    state = module.state_dict()
    optimizer = torch.optim.Adam(module.parameters())
    module(torch.ones(1, 4)).sum().backward()
    optimizer.step()
    state = module.state_dict()
    lightning = OrderedDict((f"model.{name}", tensor) for name, tensor in state.items())
    return {
        "plain": state,
        "model": {"model": state, "epoch": 3, "optimizer": optimizer.state_dict()},
        "nested": {"run": {"best": {"weights": state, "score": torch.tensor(0.5)}}, "mean": {"x": torch.ones(4)}},
        "lightning": {
            "epoch": 1,
            "global_step": 10,
            "pytorch-lightning_version": "2.4.0",
            "state_dict": lightning,
            "loops": {"fit_loop": {"state_dict": {}, "progress": {"total": 3}}},
            "callbacks": {"ModelCheckpoint": {"best_model_score": torch.tensor(0.1), "dirpath": "x"}},
            "optimizer_states": [optimizer.state_dict()],
            "lr_schedulers": [],
            "hparams_name": "kwargs",
        },
        "data parallel": OrderedDict((f"module.{name}", tensor) for name, tensor in state.items()),
    }


@pytest.mark.parametrize("name", checkpoints())
def test_the_only_state_dict_is_found(name: str, tmp_path: Path) -> None:
    content = checkpoints()[name]
    torch.save(content, tmp_path / "net.ckpt")
    module = chain()
    module.load_state_dict(checkpoints()["plain"])
    want = load(module)
    refused(NO_ARCHITECTURE, tmp_path / "net.ckpt")
    assert identical(load(tmp_path / "net.ckpt", module=chain), want)
    np.testing.assert_array_equal(load(tmp_path / "net.ckpt", activation="relu")(X), want(X))


def test_one_of_several_is_chosen_by_its_key(tmp_path: Path) -> None:
    a, b = chain().state_dict(), {name: 2 * tensor for name, tensor in chain().state_dict().items()}
    path = tmp_path / "net.pt"
    torch.save({"model": a, "ema": {"model": b, "decay": 0.9}}, path)
    refused("expected one state dict, got 2: 'model', 'ema.model'; choose one by key=", path, activation="relu")
    refused("expected one state dict, got 2", path, module=chain)
    for key, state in (("model", a), ("ema", b), ("ema.model", b)):
        for options in ({"activation": "relu"}, {"module": chain}):
            net = load(path, key=key, **options)  # type: ignore[arg-type]
            np.testing.assert_array_equal(net.parameters["0.weight"], state["0.weight"].double().numpy())
    refused("key: expected one of 'model', 'ema.model', got 'mdoel'", path, key="mdoel", activation="relu")
    refused("key: expected a name", path, key="", activation="relu")
    refused(NO_ARCHITECTURE, path, key="model")


@pytest.mark.parametrize("ending", ENDINGS)
def test_a_key_may_end_in_a_prefix_of_names(ending: str, tmp_path: Path) -> None:
    parts = {"generator": chain().state_dict(), "critic": nn.Sequential(nn.Linear(3, 1)).state_dict()}
    state = {f"{part}.{name}": tensor for part, found in parts.items() for name, tensor in found.items()}
    path = stored(state, tmp_path / f"net.{ending}")
    assert identical(load(path, key="generator", activation="relu"), load(chain()))
    assert identical(load(path, module=chain), load(chain()))  # the only part that has its names
    refused("key: expected one of ", path, key="discriminator", activation="relu")


def test_two_parts_that_fit_are_not_guessed(tmp_path: Path) -> None:
    state = {f"{part}.{name}": tensor for part in "ab" for name, tensor in chain().state_dict().items()}
    path = stored(state, tmp_path / "net.pt")
    refused("the module fits 'a', 'b' in the file; choose one by key=", path, module=chain)
    assert identical(load(path, module=chain, key="b"), load(chain()))


def test_a_checkpoint_may_hold_itself_and_be_deep(tmp_path: Path) -> None:
    deep: dict[str, Any] = {"end": chain().state_dict()}
    for _ in range(200):
        deep = {"in": deep}
    circle: dict[str, Any] = {"model": chain().state_dict(), "step": 1}
    circle["self"] = circle
    for content in (deep, circle):
        torch.save(content, tmp_path / "net.pt")
        assert identical(load(tmp_path / "net.pt", activation="relu"), load(chain()))


def test_checkpoints_with_objects_are_never_unpickled(tmp_path: Path) -> None:
    torch.save({"state_dict": chain().state_dict(), "hyper": Path("x")}, tmp_path / "net.ckpt")
    refused("never read", tmp_path / "net.ckpt", activation="relu")


# -- options that nobody needs --------------------------------------------------------------------------------------

OPTIONS: dict[str, Any] = {"activation": "relu", "module": chain, "key": "model", "until": "0"}


@pytest.mark.parametrize("option", OPTIONS)
def test_options_are_not_left_aside_in_silence(option: str, tmp_path: Path) -> None:
    net = load(chain())
    given = {option: OPTIONS[option]}
    with pytest.raises(UnneededError, match=f"{option}: expected none for a Network"):
        load(net, **given)
    for ending in ("npz", "pt", "safetensors", "onnx"):
        save(net, tmp_path / f"net.{ending}")
        if ending == "onnx" and option == "until":
            continue
        with pytest.raises(UnneededError, match=f"net.{ending}: {option}: expected none for .* holds its architecture"):
            load(tmp_path / f"net.{ending}", **given)
    if option != "until":
        with pytest.raises(UnneededError, match=f"{option}: expected none for a torch module"):
            load(chain(), **given)


def test_many_models_share_the_options_that_each_needs(tmp_path: Path) -> None:
    net = load(chain())
    save(net, tmp_path / "own.npz")
    save(net, tmp_path / "own.onnx")
    plain = stored(chain().state_dict(), tmp_path / "plain.pt")
    for paths in itertools.permutations([tmp_path / "own.npz", plain, tmp_path / "own.onnx"]):
        assert all(identical(found, net) for found in load_many(paths, activation="relu"))
        assert all(identical(found, net) for found in load_many(paths, module=chain))
    with pytest.raises(UnneededError, match="activation"):
        load_many([tmp_path / "own.npz", tmp_path / "own.onnx"], activation="relu")
    with pytest.raises(InputError, match="holds numbers and no architecture"):
        load_many([tmp_path / "own.npz", plain])
    assert load_many([]) == []


def test_the_same_numbers_are_two_functions(tmp_path: Path) -> None:
    """What was called equal once: a tanh network and a ReLU network with the same state dict."""
    relu = stored(chain().state_dict(), tmp_path / "relu.pt")
    tanh = stored(chain(nn.Tanh()).state_dict(), tmp_path / "tanh.pt")
    for path in (relu, tanh):
        refused(NO_ARCHITECTURE, path)
    refused("Tanh.: it is not piecewise linear", tanh, UnsupportedModelError, module=lambda: chain(nn.Tanh()))
    assert isinstance(load(relu, module=chain), Network)
