"""Fixed parts on any module: the law W_eff = F + D * W, what torch does with modules, refusals that name layers."""

from __future__ import annotations

import io
from copy import deepcopy
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.func import functional_call, vmap
from torch.nn.utils import parametrize

from fiberscope.errors import InputError
from fiberscope.modules.models import mlp, resnet20, vit
from fiberscope.modules.parametrisations import FixedPart, Gate, effective_weights, fixed_parts
from fiberscope.neurons.asymmetric_models import RESNET_FIXED, w_mlp, w_resnet20, w_vit
from fiberscope.neurons.asymmetry import break_symmetry

SCHEMES = ("w", "syre", "residual", "sparse")


def small(seed: int = 0) -> nn.Sequential:
    return mlp((6, 5, 4, 3), seed)


def of_weights(net: nn.Module) -> list[FixedPart]:
    """The fixed parts of a module's weights, in its order."""
    return [part for _, part in fixed_parts(net) if isinstance(part, FixedPart)]


def images() -> Tensor:
    return torch.randn(2, 3, 8, 8, generator=torch.Generator().manual_seed(0))


def weights_of(net: nn.Module) -> list[tuple[Tensor, FixedPart, Tensor]]:
    """Effective weight, fixed part and trained weight of every layer."""
    found = []
    for part in net.modules():
        if parametrize.is_parametrized(part):
            for name, items in part.parametrizations.items():  # type: ignore[union-attr, operator]
                found.append((getattr(part, name), items[0], items.original))
    return found


class WithAttention(nn.Module):
    """nn.MultiheadAttention, fused or with separate projections, and a head."""

    def __init__(self, separate: bool) -> None:
        super().__init__()
        sizes = {"kdim": 6, "vdim": 5} if separate else {}
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True, **sizes)
        self.separate = separate
        self.head = nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        k, v = (x[..., :6], x[..., :5]) if self.separate else (x, x)
        result: Tensor = self.head(self.attention(x, k, v, need_weights=False)[0])
        return result


MODELS: dict[str, tuple[Any, tuple[int, ...]]] = {
    "mlp": (small, (7, 6)),
    "resnet": (lambda: resnet20(1, blocks=1), (2, 3, 8, 8)),
    "vit": (lambda: vit(16, depth=1, heads=2, image=8), (2, 3, 8, 8)),
    "fused attention": (lambda: WithAttention(False), (2, 4, 8)),
    "separate attention": (lambda: WithAttention(True), (2, 4, 8)),
    "encoder": (lambda: nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True), (2, 4, 8)),
}


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("model", MODELS)
def test_law_after_optimiser_steps(model: str, scheme: str) -> None:
    torch.manual_seed(0)
    make, shape = MODELS[model]
    net = break_symmetry(make(), scheme, 5)
    before = [(part.F.clone(), part.D.clone()) for _, part, _ in weights_of(net)]
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.1, weight_decay=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        net(torch.randn(shape)).square().mean().backward()
        optimizer.step()
    assert before
    for (weight, part, W), (F, D) in zip(weights_of(net), before, strict=True):
        assert torch.equal(part.F, F) and torch.equal(part.D, D)
        assert torch.equal(weight, F + D * W)
        assert torch.equal(weight[D == 0], F[D == 0])


@settings(max_examples=20, deadline=None)
@given(
    st.sampled_from(SCHEMES),
    st.sampled_from(["sgd", "adam", "adamw", "rmsprop", "lbfgs"]),
    st.integers(0, 2**31),
    st.floats(0.0, 3.0),
)
def test_law_for_any_optimiser(scheme: str, kind: str, seed: int, sigma: float) -> None:
    net = break_symmetry(small(seed % 7), scheme, seed, sigma=sigma)
    kinds: dict[str, Any] = {
        "sgd": lambda p: torch.optim.SGD(p, lr=0.3, momentum=0.9, weight_decay=0.1),
        "adam": lambda p: torch.optim.Adam(p, lr=0.3, weight_decay=0.1),
        "adamw": lambda p: torch.optim.AdamW(p, lr=0.3),
        "rmsprop": lambda p: torch.optim.RMSprop(p, lr=0.1),
        "lbfgs": lambda p: torch.optim.LBFGS(p, lr=0.1, max_iter=2),
    }
    optimizer = kinds[kind](net.parameters())
    x = torch.randn(7, 6, generator=torch.Generator().manual_seed(seed))

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = net(x).square().mean()
        loss.backward()
        return loss

    optimizer.step(closure)
    for weight, part, W in weights_of(net):
        assert torch.equal(weight, part.F + part.D * W)


def test_weight_decay_acts_on_w_alone() -> None:
    net = break_symmetry(nn.Sequential(nn.Linear(4, 4, bias=False)), "syre", 0)
    _, part, W = weights_of(net)[0]
    start = W.detach().clone()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.5, weight_decay=0.2)
    W.grad = torch.zeros_like(W)
    optimizer.step()
    assert torch.allclose(W, 0.9 * start)
    assert torch.allclose(weights_of(net)[0][0], part.F + part.D * 0.9 * start)


@pytest.mark.parametrize("scheme", [*SCHEMES, "sigma"])
def test_argument_is_untouched_and_w_starts_at_the_weight(scheme: str) -> None:
    net = small()
    before = {name: value.clone() for name, value in net.state_dict().items()}
    broken = break_symmetry(net, scheme, 1)
    assert all(torch.equal(value, before[name]) for name, value in net.state_dict().items())
    assert list(net.state_dict()) == list(before)
    for _, _, W in weights_of(broken):
        assert any(torch.equal(W, value) for value in before.values() if value.shape == W.shape)


def test_parts_depend_on_seed_and_name_alone() -> None:
    a, b = break_symmetry(small(0), "w", 9, fixed=2), break_symmetry(small(1), "w", 9, fixed=2)
    other = break_symmetry(small(0), "w", 10, fixed=2)
    deeper = break_symmetry(mlp((6, 5, 4, 3, 2)), "w", 9, fixed=2)
    for name, part in fixed_parts(a):
        assert torch.equal(part.F, dict(fixed_parts(b))[name].F)
        assert not torch.equal(part.F, dict(fixed_parts(other))[name].F)
    for name in ("linear0.weight", "linear1.weight", "linear2.weight"):
        assert torch.equal(dict(fixed_parts(a))[name].F, dict(fixed_parts(deeper))[name].F)


def test_scale_and_number_do_not_change_the_draw() -> None:
    one = dict(fixed_parts(break_symmetry(small().double(), "w", 0, fixed=1, sigma=1.0)))["linear0.weight"]
    two = dict(fixed_parts(break_symmetry(small().double(), "w", 0, fixed=3, sigma=2.0)))["linear0.weight"]
    kept = one.D == 0  # type: ignore[union-attr]
    assert torch.equal(two.F[kept], 2 * one.F[kept])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_dtype_is_the_weights(dtype: torch.dtype) -> None:
    net = break_symmetry(small().to(dtype), "w", 0)
    assert all(part.F.dtype == dtype for _, part in fixed_parts(net))
    assert net(torch.zeros(1, 6, dtype=dtype)).dtype == dtype


def test_counts_of_fixed_entries() -> None:
    convolution = nn.Sequential(nn.Conv2d(3, 5, 3), nn.Conv1d(2, 4, 2), nn.Linear(7, 2))
    net = break_symmetry(convolution, "w", 0, fixed=(11, 3, 4))
    first, second, third = of_weights(net)
    assert (first.D == 0).sum(dim=(0, 2, 3)).tolist() == [11] * 3
    assert (second.D == 0).sum(dim=(0, 2)).tolist() == [3] * 2
    assert (third.D == 0).sum(dim=1).tolist() == [4] * 2
    by_output = of_weights(break_symmetry(convolution, "w", 0, fixed=(27, 0, 0), per="output"))
    assert int(by_output[0].D.sum()) == 0


def test_settings_of_each_scheme() -> None:
    layer = nn.Sequential(nn.Linear(50, 40).double())
    (syre,) = of_weights(break_symmetry(layer, "syre", 0, sigma=3.0, epsilon=0.5))
    assert 2.8 < float(syre.F.std()) < 3.2
    assert float(syre.D.min()) >= 1.5**-0.5 and float(syre.D.max()) <= 0.5**-0.5
    (residual,) = of_weights(break_symmetry(layer, "residual", 0))
    assert torch.equal(residual.F, torch.eye(40, 50).double())
    (sparse,) = of_weights(break_symmetry(layer, "sparse", 0, density=0.15))
    assert not sparse.F.any() and 0.1 < float(sparse.D.mean()) < 0.2
    identity = break_symmetry(nn.Sequential(nn.Conv2d(2, 2, 3, padding=1, bias=False)), "residual", 0)
    with torch.no_grad():
        identity[0].parametrizations.weight.original.zero_()  # type: ignore[index, union-attr]
    x = torch.randn(1, 2, 5, 5)
    assert torch.equal(identity(x), x)


def test_settings_by_name_and_pattern() -> None:
    net = break_symmetry(small(), "w", 0, fixed={"linear0": 1, "*": 2}, sigma={"linear[01]": 0.0, "linear2": 1.0})
    parts = dict(fixed_parts(net))
    assert [(parts[f"linear{i}.weight"].D == 0)[0].sum().item() for i in range(3)] == [1, 2, 2]  # type: ignore[union-attr]
    assert [bool(parts[f"linear{i}.weight"].F.any()) for i in range(3)] == [False, False, True]
    partly = break_symmetry(small(), "w", 0, include="linear*", exclude=["linear1"])
    assert [name for name, _ in fixed_parts(partly)] == ["linear0.weight", "linear2.weight"]
    names = [*(f"attention.{letter}_proj" for letter in "qkv"), "attention.out_proj", "head"]
    with pytest.raises(InputError, match=f"of {', '.join(names)} none is left"):
        break_symmetry(WithAttention(True), "w", 0, include="nothing")


# -- what torch does with modules --------------------------------------------------------------------------------------


@pytest.mark.parametrize("scheme", [*SCHEMES, "sigma"])
def test_checkpoint_deepcopy_and_state_dict(scheme: str) -> None:
    net = break_symmetry(small(0), scheme, 4)
    x = torch.randn(3, 6)
    file = io.BytesIO()
    torch.save(net.state_dict(), file)
    file.seek(0)
    other = break_symmetry(small(1), scheme, 5)
    other.load_state_dict(torch.load(file, weights_only=True))
    assert torch.equal(other(x), net(x))
    twin = deepcopy(net)
    assert torch.equal(twin(x), net(x))
    with torch.no_grad():
        for parameter in twin.parameters():
            parameter.add_(1.0)
    assert not torch.equal(twin(x), net(x))


def test_functional_call_vmap_and_gradients() -> None:
    nets = [break_symmetry(small(seed), "w", 4) for seed in range(3)]
    x = torch.randn(5, 6)
    stacked = {
        name: torch.stack([dict(net.named_parameters())[name] for net in nets])
        for name in dict(nets[0].named_parameters())
    }
    outputs = vmap(lambda state: functional_call(nets[0], state, (x,)))(stacked)
    for net, output in zip(nets, outputs, strict=True):
        assert torch.allclose(net(x), output, atol=1e-6)
    gradient = torch.func.grad(lambda state: functional_call(nets[0], state, (x,)).square().sum())
    found = gradient(dict(nets[0].named_parameters()))
    part = of_weights(nets[0])[0]
    assert not found["linear0.parametrizations.weight.original"][part.D == 0].any()


def test_compile() -> None:
    net = break_symmetry(small(), "w", 0)
    x = torch.randn(3, 6)
    try:
        compiled = torch.compile(net, backend="aot_eager", fullgraph=True)
        output = compiled(x)
    except (RuntimeError, ImportError) as error:
        if isinstance(
            error, torch._dynamo.exc.Unsupported
        ):  # a break in the graph is our fault, a missing compiler not
            raise
        pytest.skip(f"torch.compile does not work here: {str(error).splitlines()[0]}")
    assert torch.allclose(output, net(x), atol=1e-6)
    output.sum().backward()
    assert net.linear0.parametrizations.weight.original.grad is not None  # type: ignore[union-attr]


def test_the_fast_path_of_attention_sees_effective_weights() -> None:
    layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
    net = break_symmetry(nn.TransformerEncoder(layer, 2), "w", 0)
    x = torch.randn(2, 4, 8)
    slow = net.train()(x)
    with torch.no_grad():  # evaluation without gradients takes torch's fused kernels
        assert torch.allclose(net.eval()(x), slow, atol=1e-5)


def test_frozen_weights_stay_frozen() -> None:
    net = break_symmetry(nn.Linear(3, 3).requires_grad_(False), "syre", 0)
    assert not any(p.requires_grad for p in [*net.parameters(), *effective_weights(net).parameters()])


def test_assignment_solves_for_w() -> None:
    net = break_symmetry(nn.Sequential(nn.Linear(6, 5).double()), "w", 0, fixed=2)
    layer, part = net[0], of_weights(net)[0]  # type: ignore[index]
    wanted = torch.where(part.D == 0, part.F, torch.randn(5, 6, dtype=torch.float64))
    layer.weight = wanted
    assert torch.equal(layer.weight, wanted)
    with pytest.raises(InputError, match="expected F at the fixed entries"):
        layer.weight = wanted + 1


def test_a_layer_with_another_parametrised_tensor() -> None:
    """Copies share the class on which torch keeps its properties: neither may lose or gain one."""
    layer = nn.Linear(3, 2)
    parametrize.register_parametrization(layer, "bias", nn.Identity())
    net = nn.Sequential(layer)
    broken = break_symmetry(net, "w", 0)
    x = torch.randn(4, 3)
    assert not parametrize.is_parametrized(layer, "weight") and parametrize.is_parametrized(broken[0], "weight")  # type: ignore[index]
    assert net(x).shape == broken(x).shape == (4, 2)
    assert torch.equal(effective_weights(broken)(x), broken(x))
    assert net(x).shape == (4, 2)


# -- effective weights -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scheme", [*SCHEMES, "sigma"])
@pytest.mark.parametrize("model", ["mlp", "resnet", "vit"])
def test_effective_weights_keep_every_bit(model: str, scheme: str) -> None:
    make, shape = MODELS[model]
    net = break_symmetry(make(), scheme, 2)
    plain = effective_weights(net)
    assert not any(parametrize.is_parametrized(part) for part in plain.modules())
    assert parametrize.is_parametrized(next(p for p in net.modules() if isinstance(p, nn.Linear))) == (
        scheme != "sigma"
    )
    x = torch.randn(shape)
    assert torch.equal(plain(x), net(x))
    if scheme != "sigma":
        assert list(plain.state_dict()) == list(make().state_dict())


def test_scales_differ_by_layer_in_effective_weights() -> None:
    net = break_symmetry(small(), "w", 0, sigma=(1.0, 5.0, 0.0), fixed=(6, 5, 4))
    plain = effective_weights(net)
    for layer, expected in zip((plain.linear0, plain.linear1, plain.linear2), (1.0, 5.0, 0.0), strict=True):
        found = float(layer.weight.detach().std())  # type: ignore[union-attr, operator]
        assert 0.6 * expected <= found <= 1.5 * expected


# -- gates -------------------------------------------------------------------------------------------------------------


def test_sigma_replaces_activations() -> None:
    net = break_symmetry(small(), "sigma", 3)
    assert [name for name, part in net.named_modules() if isinstance(part, Gate)] == ["act0", "act1"]
    gate = net.act0
    x = torch.randn(4, 5)
    assert torch.allclose(gate(x), torch.sigmoid(x @ gate.F.T) * x)  # type: ignore[operator, union-attr]


def test_gates_of_images_and_functions() -> None:
    net = break_symmetry(resnet20(1, blocks=1), "sigma", 3)
    by_example = break_symmetry(resnet20(1, blocks=1), "sigma", 3, example=images())
    assert torch.equal(net(images()), by_example(images()))
    x = torch.randn(2, 16, 4, 4)
    expected = torch.sigmoid(torch.einsum("oc,nchw->nohw", net.act.F, x)) * x  # type: ignore[union-attr]
    assert torch.allclose(net.act(x), expected, atol=1e-5)  # type: ignore[operator]
    with pytest.raises(InputError, match="found none"):
        break_symmetry(nn.Linear(2, 2), "sigma")
    with pytest.raises(InputError, match="layer 0: no layer stands before"):
        break_symmetry(nn.Sequential(nn.ReLU(), nn.Linear(2, 2)), "sigma")
    shared = nn.ReLU()
    with pytest.raises(InputError, match="several widths"):
        chain = nn.Sequential(nn.Linear(2, 3), shared, nn.Linear(3, 4), shared)
        break_symmetry(chain, "sigma", example=torch.zeros(1, 2))


# -- refusals ----------------------------------------------------------------------------------------------------------


def tied() -> nn.Module:
    net = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    net[1].weight = net[0].weight
    return net


REFUSED: list[tuple[str, Any, dict[str, Any]]] = [
    ("layer linear0: expected 0 to 6 fixed entries per row, got 7", small, {"fixed": 7}),
    (
        "layer 0: expected 0 to 45 fixed entries per input channel",
        lambda: nn.Sequential(nn.Conv2d(3, 5, 3)),
        {"fixed": 46},
    ),
    ("layer 0: its weight is parametrised already", lambda: break_symmetry(nn.Sequential(nn.Linear(2, 2))), {}),
    (
        "layer 0: its weight is parametrised already",
        lambda: nn.Sequential(nn.utils.parametrizations.weight_norm(nn.Linear(2, 2))),
        {},
    ),
    (r"layer 0: its weight is tied \(0.weight, 1.weight\)", tied, {}),
    ("no layer fits 'typo'", small, {"fixed": {"typo": 1, "*": 1}}),
    ("no value for the layer linear1", small, {"fixed": {"linear0": 1, "linear2": 1}}),
    ("expected one value or 3", small, {"fixed": (1, 2)}),
    ("scheme: expected one of", small, {"scheme": "x"}),
    ("sigma: expected a finite number at least 0 for the layer linear0, got -1", small, {"sigma": -1}),
    ("sigma: expected", small, {"sigma": float("nan")}),
    ("density: expected", small, {"density": 1.5}),
    ("epsilon: expected", small, {"scheme": "syre", "epsilon": 1.0}),
    ("expected one of them, got both", small, {"fixed": 1, "density": 0.5}),
    ("of linear0, linear1, linear2 none is left", small, {"exclude": "*"}),
    ("module: expected a linear", nn.ReLU, {}),
    ("architecture_seed", small, {"architecture_seed": 1.5}),
    ("per: expected", small, {"per": "row"}),
]


@pytest.mark.parametrize(("message", "make", "options"), REFUSED)
def test_refusals_name_the_layer(message: str, make: Any, options: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=message):
        break_symmetry(make(), **options)


def test_a_tied_layer_can_be_excluded() -> None:
    net = nn.Sequential(*tied(), nn.Linear(3, 1))
    assert [name for name, _ in fixed_parts(break_symmetry(net, include="2"))] == ["2.weight"]
    with pytest.raises(InputError, match=r"torch\.nn\.Module"):
        break_symmetry("net")  # type: ignore[arg-type]
    with pytest.raises(InputError, match=r"torch\.nn\.Module"):
        effective_weights(3)


# -- the papers' models ------------------------------------------------------------------------------------------------


def test_models_of_the_paper() -> None:
    net = w_mlp(seed=1)
    zeros = [int((part.D == 0).sum(dim=1)[0]) for _, part in fixed_parts(net)]  # type: ignore[union-attr]
    assert zeros == [64, 64, 64, 256]
    assert [tuple(part.F.shape) for _, part in fixed_parts(net)] == [(512, 784), (512, 512), (512, 512), (10, 512)]
    assert not any(bool(part.F.any()) for _, part in fixed_parts(w_mlp((8, 8, 2), sigma=0.0)))
    resnet = w_resnet20(2)
    for name, part in fixed_parts(resnet):
        counts = (part.D == 0).sum(dim=1) if part.D.dim() == 2 else (part.D == 0).sum(dim=(0, 2, 3))  # type: ignore[union-attr]
        key = next(
            k for k in RESNET_FIXED if name.startswith(k.split(".")[0]) and ("shortcut" in k) == ("shortcut" in name)
        )
        assert set(counts.tolist()) == {round(RESNET_FIXED[key] / 4)}, name
    transformer = w_vit(16, depth=1, heads=2, image=8)
    assert len(list(fixed_parts(transformer))) == 8
    assert transformer(images()).shape == (2, 10)


def test_constructors_leave_the_global_generator_alone() -> None:
    torch.manual_seed(3)
    state = torch.random.get_rng_state()
    one, two = mlp((4, 3, 2), seed=7), mlp((4, 3, 2), seed=7)
    assert torch.equal(one.linear0.weight, two.linear0.weight)  # type: ignore[arg-type, union-attr]
    assert torch.equal(torch.random.get_rng_state(), state)
