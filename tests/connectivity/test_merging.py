"""Merging, repair, many models and two widths: against formulas, planted elements and the law of no harm."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

import fiberscope as fs
from fiberscope.connectivity.selfcheck import draw
from fiberscope.errors import InputError, UnsupportedModelError
from fiberscope.modules.models import mlp

from .test_structure import built
from .zoo import ZOO

X = torch.randn(40, 5, generator=torch.Generator().manual_seed(0))


def nets(count: int, widths: tuple[int, ...] = (5, 6, 4, 3), **options: object) -> list[nn.Module]:
    found = [mlp(widths, seed, activation=nn.ReLU, norm="none", **options) for seed in range(count)]  # type: ignore[arg-type]
    for seed, net in enumerate(found):
        draw(net, seed)
    return [net.eval() for net in found]


def flat(module: nn.Module) -> Tensor:
    return torch.cat([value.detach().flatten().double() for value in module.parameters()])


# -- merging -----------------------------------------------------------------------------------------------------------


def test_means_are_means_and_nothing_is_touched() -> None:
    models = nets(3)
    before = [flat(model) for model in models]
    random = torch.random.get_rng_state()
    found = fs.merge(models, weights=[1, 2, 1], align=None)
    assert torch.allclose(flat(found), 0.25 * before[0] + 0.5 * before[1] + 0.25 * before[2], atol=1e-6)
    assert all(torch.equal(flat(model), old) for model, old in zip(models, before, strict=True))
    assert torch.equal(torch.random.get_rng_state(), random)


@pytest.mark.parametrize("count", [2, 4])
@pytest.mark.parametrize("method", ["weights", "slerp"])
def test_copies_in_other_orders_merge_to_the_same_function(count: int, method: str) -> None:
    if method == "slerp" and count > 2:
        return
    (model,) = nets(1)
    structure = fs.permutation_structure(model, X).only("permutation")
    copies = [structure.apply(model, structure.random(seed)) for seed in range(1, count)]
    found = fs.merge([model, *copies], method)
    assert torch.allclose(found(X), model(X), atol=1e-5)
    assert not torch.allclose(fs.merge([model, *copies], method, align=None)(X), model(X), atol=1e-2)
    seen = fs.merge([model, *copies], method, align="activations", data=X)
    assert torch.allclose(seen(X), model(X), atol=1e-5)


def test_slerp_keeps_lengths() -> None:
    a, b = nets(2)
    found = fs.merge([a, b], "slerp", align=None, weights=[3, 1])
    for x, y, z in zip(a.parameters(), b.parameters(), found.parameters(), strict=True):
        assert float(z.norm()) == pytest.approx(0.75 * float(x.norm()) + 0.25 * float(y.norm()), rel=1e-4)
        angle = float(torch.arccos((x * y).sum() / x.norm() / y.norm()))
        part = float(torch.arccos(((x * z).sum() / x.norm() / z.norm()).clamp(-1, 1)))
        assert part == pytest.approx(angle / 4, abs=1e-3)


def slow_ties(base: Tensor, held: list[Tensor], keep: float) -> Tensor:
    """Entry by entry, as in the paper's algorithm 1."""
    changes = []
    for one in held:
        change = (one - base).flatten().tolist()
        order = sorted(range(len(change)), key=lambda i: -abs(change[i]))[: max(1, round(keep * len(change)))]
        changes.append([value if i in order else 0.0 for i, value in enumerate(change)])
    total = []
    for values in zip(*changes, strict=True):
        sign = np.sign(sum(values))
        agree = [value for value in values if value != 0 and np.sign(value) == sign]
        total.append(sum(agree) / len(agree) if agree else 0.0)
    return base + torch.tensor(total).reshape(base.shape).to(base)


@pytest.mark.parametrize("keep", [0.2, 0.5, 1.0])
def test_ties_against_its_algorithm(keep: float) -> None:
    base, *others = nets(4)
    found = fs.merge(others, "ties", base=base, keep=keep)
    for value, start, *held in zip(*(model.parameters() for model in (found, base, *others)), strict=True):
        expected = slow_ties(start.detach(), [one.detach() for one in held], keep)
        assert torch.allclose(value, expected, atol=1e-6)


def test_models_with_ties_and_half_precision() -> None:
    a, example = built(ZOO["tied-lm"])
    b = ZOO["tied-lm"].build()
    found = fs.merge([a.bfloat16(), b.bfloat16()], data=example)
    assert found.head.weight is found.emb.weight and found.head.weight.dtype == torch.bfloat16


@pytest.mark.parametrize(
    ("message", "options"),
    [
        ("models: expected two at least", {"models": nets(1)}),
        ("method: expected one of", {"method": "sum"}),
        ("align: expected one of", {"align": "guess"}),
        ("weights: expected 2 positive", {"weights": [1.0, -1.0]}),
        ("weights: expected 2 positive", {"weights": [1.0, float("nan")]}),
        ("models: expected two for slerp, got 3", {"models": nets(3), "method": "slerp"}),
        ("base: expected the model", {"method": "ties"}),
        ("keep: expected a part", {"method": "ties", "base": nets(1)[0], "keep": 0.0}),
        ("layer linear0.weight: expected equal shapes", {"models": [*nets(1), *nets(1, (5, 7, 4, 3))]}),
    ],
)
def test_bad_mergers(message: str, options: dict[str, object]) -> None:
    with pytest.raises(InputError, match=message):
        fs.merge(**({"models": nets(2)} | options))  # type: ignore[arg-type]


# -- repair ------------------------------------------------------------------------------------------------------------


class Normed(nn.Sequential):
    def __init__(self) -> None:
        super().__init__(nn.Linear(5, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.9), nn.Linear(8, 3))


def test_batch_norms_get_the_statistics_of_the_data() -> None:
    torch.manual_seed(0)
    net = Normed().train()
    kept = {key: value.clone() for key, value in net.state_dict().items()}
    found = fs.repair(net, X)
    given = net[0](X)
    assert torch.allclose(found[1].running_mean, given.mean(0), atol=1e-5)
    assert torch.allclose(found[1].running_var, given.var(0), atol=1e-5)
    assert all(torch.equal(value, kept[key]) for key, value in net.state_dict().items())
    assert net.training and found.training and found[1].momentum == net[1].momentum
    again = fs.repair(net, X, batch_size=20)
    assert torch.allclose(again[1].running_mean, given.mean(0), atol=1e-5)


def test_activations_between_two_ends() -> None:
    a, b = nets(2, (5, 30, 30, 3))
    middle = fs.interpolate(a, b, 0.5)
    found = fs.repair(middle, X, (a, b))

    def statistics(net: nn.Module, layer: int) -> tuple[Tensor, Tensor]:
        given = net[: [2, 4][layer]](X)
        return given.mean(0), given.std(0, correction=0)

    for layer in range(2):
        ends = [statistics(net, layer) for net in (a, b)]
        for k in range(2):
            wanted = (ends[0][k] + ends[1][k]) / 2
            assert torch.allclose(statistics(found, layer)[k], wanted, atol=1e-4), layer
        assert not torch.allclose(statistics(middle, layer)[1], wanted, atol=1e-2)
    assert torch.equal(found.linear2.weight, middle.linear2.weight)  # the last layer stays
    ends_alone = fs.repair(a, X, (a, a))
    assert torch.allclose(ends_alone(X), a(X), atol=1e-4)


def test_repair_of_convolutions_and_transformers() -> None:
    for name in ("vgg", "unet", "gpt2"):
        a, example = built(ZOO[name])
        b = ZOO[name].build().eval()
        draw(a, 0)
        draw(b, 1)
        same = fs.repair(a, example, (a, a))
        with torch.no_grad():
            for one, two in ((a, same),):
                left, right = (
                    model(**example) if isinstance(example, dict) else model(example) for model in (one, two)
                )
                left, right = (getattr(value, "logits", value) for value in (left, right))
                assert torch.allclose(left, right, atol=1e-3 * float(left.abs().max()))
        assert fs.repair(fs.interpolate(a, b, 0.5), example, (a, b)) is not a


def test_repair_behind_batch_norms() -> None:
    """A layer behind a batch norm is corrected for what it gets from the repaired norm, not from the old one."""

    def made(seed: int) -> nn.Module:
        torch.manual_seed(seed)
        parts = (nn.Linear(5, 6, bias=False), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 4), nn.ReLU(), nn.Linear(4, 2))
        return fs.repair(nn.Sequential(*parts).double(), X.double())

    a, b, x = made(0), made(1), X.double()
    found = fs.repair(fs.interpolate(a, b, 0.5), x, (a, b), batch_size=len(x))
    with torch.no_grad():
        spreads = [net.eval()[:4](x).std(0, correction=0) for net in (a, b, found)]
        means = [net.eval()[:4](x).mean(0) for net in (a, b, found)]
    # running variances are unbiased ones, so a factor sqrt(n / (n - 1)) may be left
    torch.testing.assert_close(spreads[2], (spreads[0] + spreads[1]) / 2, rtol=1 / len(x), atol=0)
    torch.testing.assert_close(means[2], (means[0] + means[1]) / 2, rtol=1 / len(x), atol=1 / len(x))


def test_repair_with_ends_of_batch_norms_alone() -> None:
    """Convolutions without biases: the batch norms are repaired, as without ends; then channels are between the ends.

    Mean and deviation of a channel are ``beta`` and ``|gamma|``, here positive.
    """

    def made(seed: int) -> nn.Module:
        torch.manual_seed(seed)
        net = nn.Sequential(nn.Conv1d(1, 3, 2, bias=False), nn.BatchNorm1d(3), nn.Flatten(), nn.Linear(12, 2))
        nn.init.uniform_(net[1].weight, 0.5, 2.0)
        nn.init.normal_(net[1].bias)
        return net.double()

    x = X.double().unsqueeze(1)
    a, b = (fs.repair(made(seed), x) for seed in (0, 1))
    middle = fs.interpolate(a, b, 0.5)
    found, plain = fs.repair(middle, x, (a, b), batch_size=len(x)), fs.repair(middle, x, batch_size=len(x))
    assert all(torch.equal(value, plain.state_dict()[name]) for name, value in found.state_dict().items())
    with torch.no_grad():
        mean, spread = (getattr(found.eval()[:2](x), name)((0, 2)) for name in ("mean", "std"))
    torch.testing.assert_close(mean, (a[1].bias + b[1].bias) / 2)
    torch.testing.assert_close(spread, (a[1].weight + b[1].weight) / 2, rtol=1e-3, atol=0)


def test_bad_repairs() -> None:
    (net,) = nets(1)
    with pytest.raises(UnsupportedModelError, match="expected batch norms, or ends="):
        fs.repair(net, X)
    with pytest.raises(InputError, match="ends: expected two models"):
        fs.repair(net, X, (net,))
    with pytest.raises(InputError, match="expected a batch of two points"):
        fs.repair(Normed(), X[:1])
    with pytest.raises(UnsupportedModelError, match="hidden layer with a bias"):
        fs.repair(nn.Sequential(nn.Linear(5, 2)), X, [nn.Sequential(nn.Linear(5, 2))] * 2)


# -- paths -------------------------------------------------------------------------------------------------------------


def test_layers_one_by_one() -> None:
    a, b = nets(2)
    found = fs.interpolate(a, b, {"linear0": 0.5, "linear0.bias": 1.0})
    assert torch.allclose(found.linear0.weight, (a.linear0.weight + b.linear0.weight) / 2)
    assert torch.equal(found.linear0.bias, b.linear0.bias) and torch.equal(found.linear1.weight, a.linear1.weight)
    y = torch.arange(40) % 3
    alone = fs.barrier(a, b, "cross_entropy", (X, y), 5, layers=["linear1"])
    for t, value in zip(alone.t, alone.curve, strict=True):
        with torch.no_grad():
            at = float(nn.functional.cross_entropy(fs.interpolate(a, b, {"linear1": t})(X).double(), y))
        assert value == pytest.approx(at, rel=1e-5)
    with pytest.raises(InputError, match="layer linear9: the module has no such layer"):
        fs.barrier(a, b, "cross_entropy", (X, y), layers=["linear9"])
    with pytest.raises(InputError, match="layer x: the module has no such layer"):
        fs.interpolate(a, b, {"x": 0.5})


def test_relative_to_the_better_end() -> None:
    a, b = nets(2)
    y = torch.arange(40) % 3
    found = fs.barrier([a, b], [b, a], "cross_entropy", (X, y), 5)
    for values, relative in zip(found.loss.values, found.loss.relatives, strict=True):
        better = min(values[0], values[-1])
        assert relative == pytest.approx((values.max() - better) / better)
    assert found.accuracy is not None
    for values, relative in zip(found.accuracy.values, found.accuracy.relatives, strict=True):
        better = max(values[0], values[-1])
        assert relative == pytest.approx((better - values.min()) / better)
    assert found.loss.relative == pytest.approx(found.loss.relatives.mean())


def test_tokens_masks_and_perplexity() -> None:
    a, example = built(ZOO["gpt2"])
    b = ZOO["gpt2"].build().eval()
    labels = example["input_ids"].clone()
    labels[0, :4] = -100
    batch = {**example, "attention_mask": torch.ones_like(labels), "labels": labels}
    found = fs.barrier(a, b, "next_token", [batch, batch], 3)
    with torch.no_grad():
        expected = float(a(**batch).loss)  # the mean over the tokens that count, as transformers have it
    assert found.loss.values[0, 0] == pytest.approx(expected, rel=1e-5)
    assert found.perplexity is not None and found.perplexity.values[0, 0] == pytest.approx(np.exp(expected), rel=1e-5)
    assert found.accuracy is not None and found.samples == 4
    with pytest.raises(InputError, match="at least one label that counts"):
        fs.barrier(a, b, "next_token", [{**example, "labels": torch.full_like(labels, -100)}], 3)
    with pytest.raises(InputError, match="targets: expected labels"):
        fs.barrier(*nets(2), "next_token", (X, torch.arange(40) % 3), 3)


# -- many --------------------------------------------------------------------------------------------------------------


@settings(max_examples=8, deadline=None)
@given(st.integers(2, 4), st.integers(0, 1000))
def test_many_models_agree_along_cycles_and_come_closer(count: int, seed: int) -> None:
    models = [mlp((4, 5, 4, 2), seed + i, norm="none").eval() for i in range(count)]
    found = fs.match_many(models)
    assert found.distances[1] <= found.distances[0] and found.elements[0].is_identity
    for i, j in combinations(range(count), 2):
        assert (found.between(i, j) @ found.between(j, i)).is_identity
        assert (found.between(0, i) @ found.between(i, j) @ found.between(j, 0)).is_identity
    moved = found.apply(models)
    squares = [float((flat(x) - flat(y)).square().sum()) for x, y in combinations(moved, 2)]
    assert np.sqrt(np.mean(squares)) == pytest.approx(found.distances[1], rel=1e-5)
    inputs = torch.randn(6, 4, generator=torch.Generator().manual_seed(seed))
    for model, other in zip(models, moved, strict=True):
        assert torch.allclose(model(inputs), other(inputs), atol=1e-5)


def test_planted_copies_of_one_model() -> None:
    a, example = built(ZOO["gpt2"])
    draw(a, 0)
    structure = fs.permutation_structure(a, example).only("permutation")
    copies = [structure.apply(a, structure.random(seed)) for seed in range(3)]
    found = fs.match_many(copies, structure)
    assert found.distances[1] == 0
    with pytest.raises(InputError, match="models: expected two at least"):
        fs.match_many([a])


# -- two widths --------------------------------------------------------------------------------------------------------


def test_neurons_of_a_narrow_model_find_their_places() -> None:
    (wide,) = nets(1, (5, 9, 8, 3))
    rng = np.random.default_rng(0)
    places = [rng.permutation(9)[:4], rng.permutation(8)[:5]]
    narrow = mlp((5, 4, 5, 3), 0, activation=nn.ReLU, norm="none")
    with torch.no_grad():
        for k in range(3):
            rows = slice(None) if k == 2 else torch.tensor(places[k])
            columns = slice(None) if k == 0 else torch.tensor(places[k - 1])
            source, target = wide.get_submodule(f"linear{k}"), narrow.get_submodule(f"linear{k}")
            target.weight.copy_(source.weight[rows][:, columns])
            target.bias.copy_(source.bias[rows])
    found = fs.match(narrow, wide, method="weights")
    assert found.narrow == {"linear0": 4, "linear1": 5}
    for name, expected in zip(("linear0", "linear1"), places, strict=True):
        assert found.permutations[name][: len(expected)].tolist() == expected.tolist()
    moved = found.apply(wide)
    assert torch.equal(moved.linear1.weight[:5, :4], narrow.linear1.weight)
    assert torch.allclose(moved(X), wide(X), atol=1e-5)
    with pytest.raises(InputError, match="exchange the two"):
        fs.match(wide, narrow, method="weights")
    with pytest.raises(UnsupportedModelError, match="matched by 'weights'"):
        fs.match(narrow, wide, data=X)


def test_a_transformer_with_fewer_heads() -> None:
    transformers = pytest.importorskip("transformers")
    common = {"vocab_size": 30, "n_positions": 16, "n_layer": 1, "bos_token_id": 0, "eos_token_id": 1}
    torch.manual_seed(0)
    wide = transformers.GPT2LMHeadModel(transformers.GPT2Config(n_embd=24, n_head=6, n_inner=40, **common)).eval()
    narrow = transformers.GPT2LMHeadModel(transformers.GPT2Config(n_embd=12, n_head=3, n_inner=20, **common)).eval()
    example = {"input_ids": torch.randint(0, 30, (1, 5))}
    found = fs.match(narrow, wide, method="weights", data=example)
    assert found.distances is not None and found.distances[1] < found.distances[0]
    assert found.narrow is not None and set(found.narrow.values()) == {12, 20, 3, 4}
