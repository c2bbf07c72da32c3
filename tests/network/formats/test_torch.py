"""Torch modules: every layer and function against torch in float64, names of parameters, and what is refused."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils import parametrize, prune

from fiberscope.errors import InputError, UnsupportedModelError
from fiberscope.network.comparison import identical
from fiberscope.network.convolutions import Convolution
from fiberscope.network.io import load
from fiberscope.network.nodes import Affine, PiecewiseLinear
from fiberscope.network.operators import Scale
from fiberscope.network.to_torch import Program, to_torch


class Wrapped(nn.Module):
    """A forward given as a function of the module and the input, on some layers."""

    def __init__(self, forward: Callable[[Any, Tensor], Any], **parts: Any) -> None:
        super().__init__()
        self.run = forward
        for name, part in parts.items():
            if isinstance(part, nn.Module | nn.Parameter):
                setattr(self, name, part)
            else:
                self.register_buffer(name, part)

    def forward(self, x: Tensor) -> Any:
        return self.run(self, x)


class Block(nn.Module):
    """A residual block with batch normalisation and a projection on the skip connection."""

    def __init__(self, inside: int, out: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inside, out, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(out)
        self.conv2 = nn.Conv2d(out, out, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(out)
        self.relu = nn.ReLU(inplace=True)
        self.short = nn.Sequential(nn.Conv2d(inside, out, 1, stride, bias=False), nn.BatchNorm2d(out))

    def forward(self, x: Tensor) -> Tensor:
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        out += self.short(x)
        return self.relu(out)


def residual_cnn() -> nn.Module:
    layers = Block(2, 3, 1), Block(3, 4, 2), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 3)
    return nn.Sequential(*layers)


def plain_cnn() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(2, 4, 3, padding="same"),
        nn.BatchNorm2d(4),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(4, 4, 2, groups=4),
        nn.LeakyReLU(0.1),
        nn.Dropout2d(),
        nn.Flatten(),
        nn.Linear(16, 5),
        nn.ReLU(),
        nn.Linear(5, 3),
    )


def parameter(*shape: int) -> nn.Parameter:
    return nn.Parameter(torch.randn(*shape))


def shared_twice() -> nn.Module:
    layer = nn.Linear(3, 3)
    return nn.Sequential(layer, nn.ReLU(), layer, nn.ReLU(), layer)


IMAGE, SIGNAL, VECTOR = (2, 6, 6), (2, 8), (3,)

# name: (module, input shape or None to infer it)
MODULES: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...] | None]] = {
    "chain": (lambda: nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)), None),
    "no_bias": (lambda: nn.Sequential(nn.Linear(3, 4, bias=False), nn.LeakyReLU(0.2), nn.Linear(4, 2)), None),
    "flatten_first": (lambda: nn.Sequential(nn.Flatten(), nn.Linear(6, 2)), None),
    "shared": (shared_twice, None),
    "plain_cnn": (plain_cnn, IMAGE),
    "residual_cnn": (residual_cnn, IMAGE),
    "rows": (lambda: nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 2)), (3, 4)),
    "conv2d": (lambda: nn.Conv2d(2, 4, (3, 2), (2, 1), (1, 0), (1, 2), 2), IMAGE),
    "conv2d_same_even": (lambda: nn.Conv2d(2, 3, (2, 4), padding="same", dilation=(2, 1)), IMAGE),
    "conv2d_valid": (lambda: nn.Conv2d(2, 3, 2, padding="valid"), IMAGE),
    "conv1d": (lambda: nn.Sequential(nn.Conv1d(2, 4, 3, 2, 1), nn.ReLU(), nn.Conv1d(4, 2, 2, groups=2)), SIGNAL),
    "batch_norm1d": (lambda: nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.ReLU()), None),
    "batch_norm1d_signal": (lambda: nn.BatchNorm1d(2), SIGNAL),
    "batch_norm_bare": (lambda: nn.BatchNorm2d(2, affine=False), IMAGE),
    "max_pool1d": (lambda: nn.MaxPool1d(3, 2, 1, ceil_mode=True), SIGNAL),
    "max_pool2d": (lambda: nn.MaxPool2d((3, 2), (2, 1), (1, 0), (1, 2)), IMAGE),
    "max_pool2d_ceil": (lambda: nn.MaxPool2d(4, 3, 1, ceil_mode=True), (2, 7, 6)),
    "avg_pool1d": (lambda: nn.AvgPool1d(2), SIGNAL),
    "avg_pool2d": (lambda: nn.AvgPool2d(3, 2, 1), IMAGE),
    "avg_pool2d_inside": (lambda: nn.AvgPool2d(3, 2, 1, count_include_pad=False), IMAGE),
    "avg_pool2d_ceil": (lambda: nn.AvgPool2d(3, 2, 1, ceil_mode=True), (2, 6, 7)),
    "avg_pool2d_ceil_inside": (lambda: nn.AvgPool2d(4, 3, 1, ceil_mode=True, count_include_pad=False), (2, 6, 7)),
    "adaptive": (lambda: nn.AdaptiveAvgPool2d((3, None)), IMAGE),
    "unflatten": (lambda: nn.Sequential(nn.Linear(3, 8), nn.Unflatten(1, (2, -1, 2)), nn.Conv2d(2, 1, 2)), None),
    "functional": (
        lambda: Wrapped(
            lambda m, x: F.linear(F.dropout(F.leaky_relu(F.relu(m.a(x)) - 0.5, 0.3), training=m.training), m.w, m.b),
            a=nn.Linear(3, 4),
            w=parameter(2, 4),
            b=parameter(2),
        ),
        VECTOR,
    ),
    "functional_conv": (
        lambda: Wrapped(
            lambda m, x: F.avg_pool2d(F.max_pool2d(F.conv2d(x, m.w, m.b, padding=1).relu(), 2, stride=1), 2).flatten(1),
            w=parameter(3, 2, 3, 3),
            b=parameter(3),
        ),
        IMAGE,
    ),
    "functional_norm": (
        lambda: Wrapped(
            lambda m, x: F.adaptive_avg_pool2d(F.batch_norm(x, m.mean, m.var, m.w, m.b, eps=0.1), 2),
            mean=torch.randn(2),
            var=torch.rand(2),
            w=parameter(2),
            b=parameter(2),
        ),
        IMAGE,
    ),
    "functional_1d": (
        lambda: Wrapped(
            lambda m, x: F.adaptive_avg_pool1d(F.max_pool1d(F.avg_pool1d(F.conv1d(x, m.w), 2, 1), 2), 1).squeeze(-1),
            w=parameter(3, 2, 3),
        ),
        SIGNAL,
    ),
    "arithmetic": (
        lambda: Wrapped(
            lambda m, x: 1 - (2 * torch.relu(-x / m.d + m.c) - torch.mul(x, m.f)) * 0.25 + torch.sub(x, 3),
            c=torch.randn(3),
            d=torch.rand(1, 3) + 1,
            f=torch.randn(()),
        ),
        VECTOR,
    ),
    "tensor_made_in_forward": (
        lambda: Wrapped(lambda m, x: (x + torch.tensor([1.0, 2.0, 3.0]) * torch.ones(1)).relu() * torch.tensor(2.0)),
        VECTOR,
    ),
    "broadcast": (
        lambda: Wrapped(lambda m, x: x.mean((2, 3), keepdim=True).relu() + x * m.f, f=torch.randn(1, 6)),
        IMAGE,
    ),
    "means": (
        lambda: Wrapped(lambda m, x: torch.cat([x.mean((2, 3)), torch.mean(x, (1, -1)), x.mean(1).mean(1)], 1)),
        IMAGE,
    ),
    "concat": (lambda: Wrapped(lambda m, x: torch.cat([x, m.a(x), x.relu()], dim=-1), a=nn.Conv2d(2, 2, 1)), IMAGE),
    "concat_channels": (lambda: Wrapped(lambda m, x: torch.cat((x, x), 1)), IMAGE),
    "view_size": (lambda: Wrapped(lambda m, x: m.a(x.view(x.size(0), -1)), a=nn.Linear(72, 3)), IMAGE),
    "view_shape": (lambda: Wrapped(lambda m, x: x.relu().reshape(x.shape[0], 4, -1).unsqueeze(2).squeeze(2)), IMAGE),
    "view_minus_one": (lambda: Wrapped(lambda m, x: m.a(x.view(-1, 72)), a=nn.Linear(72, 3)), IMAGE),
    "torch_flatten": (lambda: Wrapped(lambda m, x: m.a(torch.flatten(x, 1)), a=nn.Linear(72, 3)), IMAGE),
    "matmul": (lambda: Wrapped(lambda m, x: torch.matmul(x, m.w) + m.b, w=parameter(3, 2), b=parameter(2)), VECTOR),
    "clamp": (lambda: Wrapped(lambda m, x: x.clamp(min=0)), VECTOR),
    "masked": (lambda: Wrapped(lambda m, x: F.linear(x, m.w * m.k), w=parameter(2, 3), k=torch.eye(3)[:2]), VECTOR),
    "tied_transposed": (
        lambda: Wrapped(lambda m, x: F.linear(F.linear(x, m.w).relu(), m.w.t()), w=parameter(2, 3)),
        VECTOR,
    ),
    "in_place_shortcut": (
        lambda: Wrapped(lambda m, x: F.relu(h := m.a(x), inplace=True) + h, a=nn.Linear(3, 3)),
        VECTOR,
    ),
    "in_place_method": (
        lambda: Wrapped(lambda m, x: (h := m.a(x)).view(-1, 3).relu_() - 2 * h, a=nn.Linear(3, 3)),
        VECTOR,
    ),
    "in_place_clone": (lambda: Wrapped(lambda m, x: (h := m.a(x)).clone().relu_() - 2 * h, a=nn.Linear(3, 3)), VECTOR),
    "in_place_operator": (lambda: Wrapped(lambda m, x: in_place(m.a(x)), a=nn.Linear(3, 3)), VECTOR),
}


def in_place(h: Tensor) -> Tensor:
    other = h
    h *= 3
    h += 1
    return h.relu() - other


def filled(module: nn.Module, seed: int) -> nn.Module:
    """Random statistics and parameters, so that batch normalisation is not the identity."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for part in module.modules():
            if isinstance(part, nn.BatchNorm1d | nn.BatchNorm2d) and part.running_mean is not None:
                part.running_mean.normal_(generator=generator)
                part.running_var.uniform_(0.5, 2, generator=generator)
                if part.affine:
                    part.weight.uniform_(-2, 2, generator=generator)
                    part.bias.normal_(generator=generator)
    return module


def reference(module: nn.Module, X: np.ndarray) -> np.ndarray:
    """What torch computes in float64 and evaluation mode, on a copy."""
    with torch.no_grad():
        result = copy.deepcopy(module).double().eval()(torch.from_numpy(X.copy()))
    return result.numpy().reshape(len(X), -1)


@pytest.mark.parametrize("name", MODULES)
def test_a_module_and_its_network_agree(name: str) -> None:
    torch.manual_seed(0)
    make, shape = MODULES[name]
    module = filled(make(), 1)
    net = load(module, shape)
    X = np.random.default_rng(2).normal(size=(7, *net.input_shape))
    want, got = reference(module, X), net(X)
    assert got.shape == want.shape
    np.testing.assert_allclose(got, want, rtol=1e-12, atol=1e-12 * np.abs(want).max())


@pytest.mark.parametrize("name", MODULES)
def test_loading_leaves_the_module_as_it_was(name: str) -> None:
    module = MODULES[name][0]()
    for index, part in enumerate(module.modules()):
        part.training = index % 2 == 0
    flags = [part.training for part in module.modules()]
    attributes = [set(part.__dict__) | set(part._buffers) for part in module.modules()]
    state = {k: v.clone() for k, v in module.state_dict().items()}
    load(module, MODULES[name][1])
    assert [part.training for part in module.modules()] == flags
    assert [set(part.__dict__) | set(part._buffers) for part in module.modules()] == attributes
    assert all(torch.equal(v, state[k]) for k, v in module.state_dict().items())
    assert not any(part._forward_hooks or part._forward_pre_hooks for part in module.modules())


def test_flags_are_put_back_when_tracing_fails() -> None:
    module = Wrapped(lambda m, x: x if x.sum() > 0 else -x).train()
    with pytest.raises(UnsupportedModelError):
        load(module, VECTOR)
    assert module.training


@pytest.mark.parametrize("name", ["plain_cnn", "residual_cnn", "conv1d", "rows"])
def test_certified_signs_agree_with_torch(name: str) -> None:
    """At random points no preactivation is near zero, so torch's float64 signs are right as well."""
    torch.manual_seed(0)
    make, shape = MODULES[name]
    module = filled(make(), 3).double().eval()
    net = load(module, shape)
    X = np.random.default_rng(4).normal(size=(3, *net.input_shape))
    seen: list[np.ndarray] = []
    for part in module.modules():
        if isinstance(part, nn.ReLU | nn.LeakyReLU):
            part.register_forward_pre_hook(lambda m, args: seen.append(args[0].detach().numpy().reshape(3, -1).copy()))
    with torch.no_grad():
        module(torch.from_numpy(X))
    signs = net.signs(X)
    assert signs.by_exact == 0
    kept, start = [], 0
    for node in net.switches:
        if isinstance(node, PiecewiseLinear):  # entries of pools compete, and say no sign
            kept.append(signs.signs[:, start : start + node.num_signs])
        start += node.num_signs
    assert [k.shape for k in kept] == [s.shape for s in seen]
    for k, s in zip(kept, seen, strict=True):
        np.testing.assert_array_equal(k, np.sign(s))


# -- names of parameters -----------------------------------------------------------------------------------------


def test_parameters_have_torch_names_and_values() -> None:
    module = filled(residual_cnn(), 0)
    net = load(module, IMAGE)
    assert set(net.parameters) == {name for name, _ in module.named_parameters()}
    for name, value in module.named_parameters():
        np.testing.assert_array_equal(net.parameters[name].reshape(-1), value.detach().double().numpy().reshape(-1))
    assert net.num_parameters == sum(p.numel() for p in module.parameters())


def test_batch_norm_is_a_constant_standardisation_and_then_the_parameters() -> None:
    net = load(nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3)))
    _, standard, learned = net.nodes
    assert isinstance(standard, Affine) and isinstance(standard.operator, Scale)
    assert (standard.weight_name, standard.bias_name) == (None, None)
    assert isinstance(learned, Affine) and (learned.weight_name, learned.bias_name) == ("1.weight", "1.bias")


def test_a_layer_used_twice_shares_its_name() -> None:
    net = load(shared_twice())
    assert list(net.parameters) == ["0.weight", "0.bias"] and net.num_parameters == 12
    assert [n.weight_name for n in net.nodes if isinstance(n, Affine)] == ["0.weight"] * 3


def test_tied_weights_share_the_first_name() -> None:
    first, second = nn.Linear(2, 2), nn.Linear(2, 2)
    second.weight = first.weight
    assert list(load(nn.Sequential(first, nn.ReLU(), second)).parameters) == ["0.weight", "0.bias", "2.bias"]


def test_a_parameter_that_also_enters_transposed_is_a_constant_everywhere() -> None:
    net = load(MODULES["tied_transposed"][0](), VECTOR)
    assert not net.parameters


def test_matmul_and_add_make_one_dense_layer() -> None:
    net = load(MODULES["matmul"][0](), VECTOR)
    assert net.is_chain and list(net.parameters) == ["w", "b"]
    kept = Wrapped(lambda m, x: torch.cat([h := x @ m.w, h + m.b], 1), w=parameter(3, 2), b=parameter(2))
    assert len(load(kept, VECTOR).nodes) == 3  # the product is needed without the bias, too


class Symmetric(nn.Module):
    def forward(self, X: Tensor) -> Tensor:
        return X.triu() + X.triu(1).transpose(-1, -2)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("how", ["parametrize", "prune", "weight_norm", "spectral_norm"])
def test_computed_weights_come_with_their_value_and_without_a_name(how: str) -> None:
    torch.manual_seed(0)
    layer = nn.Linear(3, 3)
    if how == "parametrize":
        parametrize.register_parametrization(layer, "weight", Symmetric())
    elif how == "prune":
        prune.l1_unstructured(layer, "weight", 4)
        layer.weight_orig.data *= 2  # as after a training step: the attribute is stale until the next call
    elif how == "weight_norm":
        nn.utils.weight_norm(layer)
        layer.weight_g.data *= 2
    else:
        nn.utils.spectral_norm(layer)
    module = nn.Sequential(layer, nn.ReLU()).double().eval()
    net = load(module)
    X = np.random.default_rng(0).normal(size=(5, 3))
    with torch.no_grad():
        np.testing.assert_allclose(net(X), module(torch.from_numpy(X)).numpy(), rtol=1e-12)
    assert list(net.parameters) == ["0.bias"]


def test_half_precision_is_taken_over_exactly() -> None:
    for dtype in (torch.float16, torch.bfloat16):
        module = nn.Linear(3, 2).to(dtype)
        np.testing.assert_array_equal(load(module).weights[0], module.weight.detach().double().numpy())


def test_a_subclass_of_a_layer() -> None:
    class Same(nn.Linear):
        pass

    class Twice(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            return 2 * super().forward(x)

    assert load(Same(2, 3)).widths == (2, 3)
    net = load(Twice(2, 3))
    assert len(net.nodes) == 2 and list(net.parameters) == ["weight", "bias"]


def test_default_arguments_take_their_branch() -> None:
    class Optional(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a = nn.Linear(2, 3)

        def forward(self, x: Tensor, mask: Tensor | None = None, scale: float = 2.0, flip: bool = True) -> Tensor:
            x = self.a(x) if mask is None else self.a(x * mask)
            return -scale * x if flip else scale * x

    module = Optional()
    X = np.random.default_rng(0).normal(size=(4, 2))
    np.testing.assert_allclose(load(module)(X), reference(module, X), rtol=1e-12)


def test_average_pooling_stays_a_convolution() -> None:
    (node,) = load(nn.AvgPool2d(2), IMAGE).nodes
    assert isinstance(node, Affine) and isinstance(node.operator, Convolution) and node.weight_name is None


# -- what is refused -----------------------------------------------------------------------------------------------


def statement(*steps: Callable[[Any, Tensor, Tensor], Any]) -> Callable[[Any, Tensor], Tensor]:
    """A forward whose steps are run for what they do to ``y``; what they return is not used."""

    def forward(m: Any, x: Tensor) -> Tensor:
        y = m.a(x)
        for step in steps:
            step(m, x, y)
        return m.b(y)

    return forward


def through_view(m: Any, x: Tensor, y: Tensor) -> None:
    z = y.view(-1, 1, 3)
    F.relu_(z)
    z += 1.0


STATEMENTS: dict[str, Callable[[Any, Tensor, Tensor], Any]] = {
    "layer": lambda m, x, y: m.r(y),
    "leaky_layer": lambda m, x, y: m.leaky(y),
    "method": lambda m, x, y: y.relu_(),
    "sum": lambda m, x, y: y.add_(x),
    "scaled": lambda m, x, y: y.mul_(-2.0),
    "clamp": lambda m, x, y: y.clamp_(min=0),
    "function": lambda m, x, y: F.relu(y, inplace=True),
    "positional": lambda m, x, y: F.leaky_relu(y, 0.5, True),
    "torch_function": lambda m, x, y: torch.relu_(y),
    "view": through_view,
    "detached": lambda m, x, y: y.detach().relu_(),
    "dropout": lambda m, x, y: m.drop(y).relu_(),
    "input": lambda m, x, y: (x.relu_(), y.add_(x)),
    "no_change": lambda m, x, y: y.requires_grad_(False),
    "copy": lambda m, x, y: y.clone().relu_(),
}


def with_statements(*names: str) -> nn.Module:
    parts = {"r": nn.ReLU(inplace=True), "leaky": nn.LeakyReLU(0.3, inplace=True), "drop": nn.Dropout()}
    torch.manual_seed(5)
    return Wrapped(statement(*(STATEMENTS[n] for n in names)), a=nn.Linear(3, 3), b=nn.Linear(3, 2), **parts)


@pytest.mark.parametrize(
    "names", [*((name,) for name in STATEMENTS), ("sum", "layer", "scaled", "view"), ("view", "copy", "sum", "method")]
)
def test_statements_in_place_count(names: tuple[str, ...]) -> None:
    module = with_statements(*names)
    X = np.random.default_rng(3).normal(size=(40, 3))
    np.testing.assert_allclose(load(module, (3,))(X), reference(module, X), rtol=1e-12, atol=1e-12)


def assign(m: Any, x: Tensor) -> Tensor:
    y = m.a(x)
    y[:, 0] = 0
    return y


def power(m: Any, x: Tensor) -> Tensor:
    y = m.a(x)
    z = y
    z **= 2
    return y


def data(m: Any, x: Tensor) -> Tensor:
    y = m.a(x)
    y.data = y.relu()
    return y


def into_constant(m: Any, x: Tensor) -> Tensor:
    total = torch.zeros(1, 3)
    total += x
    return x + total


def first_then(step: Callable[[Any, Tensor], Any]) -> Callable[[Any, Tensor], Tensor]:
    def forward(m: Any, x: Tensor) -> Tensor:
        y = m.a(x)
        step(m, y)
        return y + m.c

    return forward


@pytest.mark.parametrize(
    ("forward", "message"),
    [
        (first_then(lambda m, y: y[:, :2].mul_(2)), r"node 'mul_'.*a part or a transpose is used later"),
        (first_then(lambda m, y: F.elu(y, inplace=True)), r"node 'elu'"),
        (first_then(lambda m, y: F.elu(y, 1.0, True)), r"node 'elu'"),
        (first_then(lambda m, y: m.elu(y)), r"node 'elu' \(torch.nn.ELU\)"),
        (first_then(lambda m, y: y.exp_()), r"node 'exp_'"),
        (first_then(lambda m, y: y.data.relu_()), r"attribute 'data'"),
        (first_then(lambda m, y: torch.add(y, 1, out=y)), r"node 'add'"),
        (first_then(lambda m, y: m.c.add_(1)), "overwrites Wrapped.c"),
        (first_then(lambda m, y: m.c.data.add_(1)), "overwrites Wrapped.c"),
        (first_then(lambda m, y: setattr(m, "c", m.c + 1)), "overwrites Wrapped.c"),
        (first_then(lambda m, y: m.c.add_(y)), r"node 'add_'.*not a computed value"),
        (first_then(lambda m, y: m.a.weight.mul_(2)), r"node 'mul_'.*not a computed value"),
        (assign, "node 'setitem'"),
        (power, "node 'ipow'"),
        (data, "assignment to 'data'"),
        (into_constant, "not a computed value"),
    ],
)
def test_what_is_overwritten_in_other_ways_is_refused(forward: Any, message: str) -> None:
    module = Wrapped(forward, a=nn.Linear(3, 3), elu=nn.ELU(inplace=True), c=torch.tensor([1.0, float("nan"), 2.0]))
    state = copy.deepcopy(module.state_dict())
    buffer = module.c
    with pytest.raises(UnsupportedModelError, match=message):
        load(module, (3,))
    assert module.c is buffer
    for key, tensor in module.state_dict().items():
        np.testing.assert_array_equal(tensor.numpy(), state[key].numpy())


def test_writing_through_a_reshape_needs_the_usual_order_of_memory() -> None:
    def forward(m: Any, x: Tensor) -> Tensor:
        y = m.a(x)
        F.relu_(torch.flatten(y, 1))
        return y

    module = Wrapped(forward, a=nn.Conv2d(2, 3, 2))
    X = np.random.default_rng(3).normal(size=(9, 2, 4, 4))
    np.testing.assert_allclose(load(module, (2, 4, 4))(X), reference(module, X), rtol=1e-12, atol=1e-12)
    with pytest.raises(UnsupportedModelError, match=r"node 'relu_'.*channels-last"):
        load(module.to(memory_format=torch.channels_last), (2, 4, 4))


def test_a_constant_overwritten_later_enters_with_its_value_at_the_time() -> None:
    def forward(m: Any, x: Tensor) -> Tensor:
        c = torch.ones(3, dtype=torch.float64)
        y = x + c
        c.add_(1)
        return y.relu() + c

    X = np.random.default_rng(3).normal(size=(9, 3))
    np.testing.assert_allclose(load(Wrapped(forward), (3,))(X), np.maximum(X + 1, 0) + 2)


class Centred(nn.Conv2d):
    """The published way to standardise weights: forward is torch's own, but calls another method."""

    def _conv_forward(self, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        return F.conv2d(input, weight - weight.mean(), bias)


class Described(nn.Conv2d):
    def extra_repr(self) -> str:
        return "plain"


class Called(nn.Linear):
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return 3 * super().__call__(*args, **kwargs)


def patched(layer: nn.Module, name: str = "forward") -> nn.Module:
    old = getattr(layer, name)
    setattr(layer, name, lambda *args: 2 * old(*args))
    return layer


@pytest.mark.parametrize(
    ("make", "shape"),
    [
        (lambda: nn.Sequential(Centred(2, 3, 2), nn.ReLU()), (2, 4, 4)),
        (lambda: Centred(2, 3, 2), (2, 4, 4)),
        (lambda: nn.Sequential(Described(2, 3, 2), nn.ReLU()), (2, 4, 4)),
        (lambda: nn.Sequential(patched(nn.Linear(3, 2)), nn.ReLU()), (3,)),
        (lambda: nn.Sequential(patched(nn.Conv2d(2, 3, 2), "_conv_forward"), nn.ReLU()), (2, 4, 4)),
        (lambda: nn.Sequential(patched(nn.Sequential(nn.Linear(3, 2))), nn.ReLU()), (3,)),
        (lambda: nn.Sequential(Called(3, 2), nn.ReLU()), (3,)),
    ],
)
def test_layers_with_replaced_methods_are_traced_into(make: Any, shape: tuple[int, ...]) -> None:
    torch.manual_seed(2)
    # Not copied: a method patched on the instance stays bound to the original.
    module = make().double()
    X = np.random.default_rng(1).normal(size=(12, *shape))
    with torch.no_grad():
        expected = module(torch.from_numpy(X)).numpy().reshape(12, -1)
    np.testing.assert_allclose(load(module, shape)(X), expected, rtol=1e-12, atol=1e-12)


def test_a_harmless_subclass_stays_one_layer() -> None:
    assert list(load(Described(2, 3, 2), (2, 4, 4)).parameters) == ["weight", "bias"]


@pytest.mark.parametrize("make", [lambda: patched(nn.Linear(3, 2)), lambda: Called(3, 2)])
def test_a_model_that_is_called_otherwise_is_refused(make: Any) -> None:
    with pytest.raises(UnsupportedModelError, match="its forward or call is replaced"):
        load(make())


def test_a_graph_module_is_read() -> None:
    module = torch.fx.symbolic_trace(nn.Sequential(nn.Linear(3, 2), nn.ReLU()))
    assert list(load(module).parameters) == ["0.weight", "0.bias"]


class TwoInputs(nn.Module):
    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return x + y


REFUSED: dict[str, tuple[Any, tuple[int, ...] | None, str]] = {
    "gelu": (
        nn.Sequential(nn.Linear(2, 2), nn.GELU()),
        None,
        r"node '_1' \(torch.nn.GELU\): it is not piecewise linear",
    ),
    "gelu_function": (Wrapped(lambda m, x: F.gelu(x)), VECTOR, r"node 'gelu' \(torch.nn.functional.gelu\)"),
    "method": (Wrapped(lambda m, x: x.relu().exp()), VECTOR, r"node 'exp' \(Tensor.exp\)"),
    "product": (Wrapped(lambda m, x: x * x), VECTOR, r"node 'mul' \(operator.mul\): a product of computed values"),
    "quotient": (Wrapped(lambda m, x: 1 / x), VECTOR, r"\(operator.truediv\): division by a computed value"),
    "control": (Wrapped(lambda m, x: x if x.sum() > 0 else -x), VECTOR, "control flow that depends on the input"),
    "training": (Wrapped(lambda m, x: F.dropout(x)), VECTOR, r"node 'dropout'.*training mode"),
    "batch": (Wrapped(lambda m, x: torch.cat([x, x])), VECTOR, r"node 'cat'.*batch axis"),
    "batch_mean": (Wrapped(lambda m, x: x - x.mean()), VECTOR, r"node 'mean'.*mixes the points"),
    "batch_flatten": (Wrapped(lambda m, x: torch.flatten(x)), VECTOR, r"node 'flatten'.*batch axis"),
    "batch_view": (Wrapped(lambda m, x: x.view(-1, 1)), VECTOR, r"node 'view'.*batch axis must stay first"),
    "batch_arithmetic": (Wrapped(lambda m, x: x.view(x.size(0) * 3, 1)), VECTOR, r"node 'mul'"),
    "batch_index": (Wrapped(lambda m, x: x[0]), VECTOR, r"node 'getitem'.*mixes the points"),
    "batch_permute": (Wrapped(lambda m, x: x.permute(1, 0)), VECTOR, "does not leave the batch axis first"),
    "squeeze_all": (Wrapped(lambda m, x: x.squeeze()), VECTOR, "axis of a batch of one point"),
    "bicubic": (Wrapped(lambda m, x: F.interpolate(x, scale_factor=2, mode="bicubic")), IMAGE, "mode 'bicubic'"),
    "statistics": (nn.BatchNorm1d(3, track_running_stats=False), VECTOR, "without stored statistics"),
    "indices": (nn.MaxPool2d(2, return_indices=True), IMAGE, "return_indices"),
    "two_inputs": (TwoInputs(), VECTOR, r"expected one input, got 2 \(x, y\)"),
    "two_outputs": (Wrapped(lambda m, x: (x + 1, x)), VECTOR, "expected one tensor as output, got a tuple of 2"),
    "constant_output": (Wrapped(lambda m, x: x + torch.ones(5, 3)), VECTOR, "changes the batch"),
    "scripted": (torch.jit.script(nn.Linear(2, 2)), VECTOR, "scripted"),
    "clamp": (Wrapped(lambda m, x: x.clamp(x, x + 1)), VECTOR, r"node 'clamp'.*its bound is computed from the input"),
    "largest_of_all": (Wrapped(lambda m, x: x - x.amax()), VECTOR, r"node 'amax'.*mixes the points"),
    "place": (Wrapped(lambda m, x: x.max(1)[1]), VECTOR, "expected one tensor as output"),
    "matrix_of_values": (Wrapped(lambda m, x: x @ x), VECTOR, "product of computed values is not piecewise"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_the_node_at_fault_is_named(name: str) -> None:
    module, shape, message = REFUSED[name]
    with pytest.raises(UnsupportedModelError, match=message) as caught:
        load(module, shape)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("make", "shape", "message"),
    [
        (lambda: nn.Conv2d(2, 2, 3), None, "input shape cannot be inferred"),
        (lambda: nn.Sequential(nn.Linear(3, 4), nn.Linear(5, 2)), None, "node '_1'.*expected 5 entries.*got shape"),
        (lambda: nn.Linear(3, 4), (4,), "expected 3 entries"),
        (lambda: nn.Conv2d(2, 2, 9), IMAGE, "does not fit"),
        (lambda: nn.Conv2d(2, 2, 3), (72,), "channels first"),
        (lambda: nn.Sequential(nn.Identity()), VECTOR, "returns its input"),
        (lambda: nn.Linear(3, 4, device="meta"), None, "weight: expected a tensor with values"),
        (
            lambda: with_value(nn.Linear(3, 4), np.nan),
            None,
            r"weight: expected finite numbers, got nan at index \(0, 0\)",
        ),
        (lambda: with_value(nn.Linear(3, 4), np.inf), None, "weight: expected finite numbers, got inf"),
        (lambda: Wrapped(lambda m, x: x / 0.0), VECTOR, "division by zero"),
        (lambda: nn.Linear(3, 4), (-3,), "input_shape: expected positive integers"),
        (lambda: nn.Linear(3, 4), "abc", "input_shape: expected positive integers"),
    ],
)
def test_inconsistent_input_is_an_input_error(make: Any, shape: Any, message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        load(make(), shape)
    assert "\n" not in str(caught.value)


def with_value(layer: nn.Linear, value: float) -> nn.Linear:
    with torch.no_grad():
        layer.weight[0, 0] = value
    return layer


def test_hooks_on_layers_are_refused() -> None:
    module = nn.Sequential(nn.Linear(2, 2))
    handle = module[0].register_forward_hook(lambda m, args, out: out + 1)
    with pytest.raises(UnsupportedModelError, match=r"node '_0' \(torch.nn.Linear\): it has forward hooks"):
        load(module)
    handle.remove()
    module.register_forward_pre_hook(lambda m, args: None)
    with pytest.raises(UnsupportedModelError, match="hooks"):
        load(module)


# -- and back ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", MODULES)
def test_back_to_torch(name: str) -> None:
    torch.manual_seed(1)
    make, shape = MODULES[name]
    module = filled(make(), 5)
    net = load(module, shape)
    back = to_torch(net)
    X = np.random.default_rng(6).normal(size=(4, *net.input_shape))
    with torch.no_grad():
        np.testing.assert_allclose(back(torch.from_numpy(X)).numpy(), net(X), rtol=1e-12, atol=1e-12)
    assert identical(load(back, net.input_shape), net) or isinstance(back, nn.Sequential)
    if isinstance(back, Program):
        assert list(back.state_dict()) == [n for n, _ in back.named_parameters()]
        assert set(back.state_dict()) == set(net.parameters)


def test_a_trained_program_loads_with_its_present_parameters() -> None:
    net = load(filled(plain_cnn(), 0), IMAGE)
    module = to_torch(net)
    module(torch.randn(2, *IMAGE, dtype=torch.float64)).sum().backward()
    assert all(p.grad is not None for p in module.parameters())
    with torch.no_grad():
        module.get_parameter("0.weight").add_(1.0)
    np.testing.assert_array_equal(load(module).parameters["0.weight"], net.parameters["0.weight"] + 1)


def test_names_that_torch_does_not_allow_are_bent() -> None:
    net = load(nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2)))
    first, second = net.nodes
    assert isinstance(first, Affine) and isinstance(second, Affine)
    odd = [
        Affine(0, first.operator, first.bias, "forward", "a"),
        Affine(1, second.operator, second.bias, "a.b", ""),
    ]
    program = Program(type(net).from_nodes(odd, (2,)))
    assert len(program.state_dict()) == 4
    X = np.ones((1, 2))
    np.testing.assert_allclose(program(torch.from_numpy(X)).detach().numpy(), net(X), rtol=1e-14)
    assert set(program.current().parameters) == {"forward", "a", "a.b", ""}
