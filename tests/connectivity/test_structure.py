"""The structure of the zoo: all groups are found, none is wrong, and what is not understood stays where it is."""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import fiberscope as fs
from fiberscope.connectivity.influence import Influence
from fiberscope.connectivity.selfcheck import Drift, Probe
from fiberscope.connectivity.structure import Structure, permutation_structure
from fiberscope.errors import InputError
from fiberscope.modules.action import PERMUTATION, SCALING, Axis, Group, Loop
from fiberscope.modules.calls import call, select
from fiberscope.network.action.element import Element
from fiberscope.neurons.asymmetry import break_symmetry

from .zoo import HF, ZOO, Entry


def built(entry: Entry) -> tuple[nn.Module, Any]:
    logging.disable(logging.WARNING)  # transformers remark on tiny vocabularies
    torch.manual_seed(0)
    return entry.build().eval(), entry.example()


def sizes(structure: Structure) -> Counter[tuple[int, int]]:
    return Counter((group.size, group.copies) for group in permutations(structure))


def permutations(structure: Structure) -> tuple[Group, ...]:
    return structure.only(PERMUTATION).groups


def refused(structure: Structure) -> set[str]:
    return {one.reason for one in structure.pinned if "self-check" in one.reason}


@pytest.mark.parametrize("name", ZOO)
def test_zoo(name: str) -> None:
    """All groups, found by the rules alone; a random element of all changes neither outputs nor greedy choices."""
    module, example = built(ZOO[name])
    before = {key: value.clone() for key, value in module.state_dict().items()}
    found = permutation_structure(module, example)
    expected = Counter(one if isinstance(one, tuple) else (one, 1) for one in ZOO[name].groups)
    assert sizes(found) == expected
    assert not refused(found) and not found.unknown
    assert all(drift.ok for drift in found.check(seed=1))
    element = Element.from_dict(json.loads(json.dumps(found.random(2).to_dict())))
    moved = found.apply(module, element)
    with torch.no_grad():
        old, new = (select(call(one, example)) for one in (module, moved))
    assert torch.allclose(old, new, rtol=1e-4, atol=1e-5 * float(old.abs().max()))
    assert torch.equal(old.argmax(-1), new.argmax(-1))
    back = found.apply(moved, element.inverse())
    for key, value in module.state_dict().items():
        assert torch.equal(value, before[key])
        assert torch.equal(value, back.state_dict()[key])
    assert not element.is_identity and json.dumps(found.to_dict())


@pytest.mark.parametrize("name", ["resnet18", "llama", "unet", "mobilenet", "densenet", "recurrent"])
def test_every_forgotten_place_is_seen(name: str) -> None:
    module, example = built(ZOO[name])
    found = permutation_structure(module, example)
    probe = Probe(module, example, None, seed=3)
    for group in found.groups:
        for axis in group.axes:
            rest = tuple(other for other in group.axes if other != axis)
            cut = Structure((replace(group, axes=rest),))
            element = Element({group.name: group.generic(np.random.default_rng(0))})
            assert not probe.drift("", cut.act(probe.own, element)).ok, (group.name, axis)


# -- the sound and the wrong symmetries of Llama -----------------------------------------------------------------------

LAYER = "model.layers.0.self_attn"


def rows(name: str, **options: Any) -> Axis:
    return Axis(f"{LAYER}.{name}.weight", 0, **options)


def columns(name: str, **options: Any) -> Axis:
    return Axis(f"{LAYER}.{name}.weight", 1, **options)


HEADS = {"q_proj": Loop(0, 6, 4), "k_proj": Loop(0, 2, 4)}
HEAD_ROWS = {"stride": 4, "rest": (Loop(0, 4),)}
WRONG = {
    "query heads across groups": (6, (rows("q_proj", **HEAD_ROWS), columns("o_proj", stride=4, rest=(Loop(1, 4),)))),
    "dimensions of queries and keys": (4, tuple(rows(key, rest=(loop,)) for key, loop in HEADS.items())),
    "pairs of dimensions": (2, tuple(rows(key, rest=(loop, Loop(0, 2, 2))) for key, loop in HEADS.items())),
    "values without their readers": (4, (rows("v_proj", rest=(Loop(0, 2, 4),)),)),
}


@pytest.mark.parametrize("kind", WRONG)
def test_wrong_symmetries_of_llama_are_seen_and_never_emitted(kind: str) -> None:
    module, example = built(HF["llama"])
    size, axes = WRONG[kind]
    wrong = Structure((Group("wrong", size, axes),))
    probe = Probe(module, example, None, seed=0)
    order = [1, 0, 3, 2, 5, 4][:size] if size != 6 else [3, 0, 1, 2, 4, 5]
    assert not probe.drift("wrong", wrong.act(probe.own, {"wrong": order})).ok


def test_what_moves_in_llama() -> None:
    module, example = built(HF["llama"])
    found = permutation_structure(module, example)
    moves = {
        (axis.tensor.removeprefix(f"{LAYER}."), axis.axis, group.size, group.copies)
        for group in permutations(found)
        for axis in group.axes
        if axis.tensor.startswith(LAYER)
    }
    assert moves == {
        *((f"{key}_proj.weight", 1, 24, 1) for key in "qkv"),
        ("o_proj.weight", 0, 24, 1),
        *((f"{key}_proj.weight", 0, 2, 1) for key in "qkv"),  # key-value heads, with their query heads
        ("o_proj.weight", 1, 2, 1),
        ("q_proj.weight", 0, 3, 2),  # the query heads of each
        ("o_proj.weight", 1, 3, 2),
        ("v_proj.weight", 0, 4, 2),  # the values of each
        ("o_proj.weight", 1, 4, 2),
    }
    reasons = {one.reason for one in found.pinned if one.tensor == f"{LAYER}.k_proj.weight"}
    assert reasons == {"model.rotary_emb.inv_freq: a buffer that is not stored"}


# -- what tells neurons apart ------------------------------------------------------------------------------------------


class Between(nn.Module):
    """Two hidden layers with something in between; ``c`` is one that nothing happens to."""

    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.a, self.b, self.c, self.d = nn.Linear(5, 6), nn.Linear(6, 7), nn.Linear(7, 8), nn.Linear(8, 2)
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.d(F.relu(self.c(F.gelu(self.b(self.function(self.a(x)))))))


X = torch.randn(4, 5, generator=torch.Generator().manual_seed(0))
APART: dict[str, Callable[[Tensor], Tensor]] = {
    "a constant": lambda h: h * torch.tensor([1.0, 2.0, 3.0, 4.0, 5.0, 6.0]).to(h),
    "a ramp": lambda h: h + torch.arange(6).to(h),
    "a cumulative sum": lambda h: h.cumsum(-1),
    "a shift": lambda h: h.roll(1, -1),
    "a flip": lambda h: h.flip(-1),
    "an order": lambda h: h.sort(-1).values,
    "one place": lambda h: h + h[:, 0].unsqueeze(1),
    "a lookup": lambda h: h[:, torch.tensor([1, 0, 2, 3, 4, 5])],
    "the first": lambda h: h * h.argmax(-1, keepdim=True),
    "an unknown operation": lambda h: torch.fft.fft(h).real,
    "an outer inverse": lambda h: torch.linalg.inv(h.T @ h + torch.eye(6).to(h))[:4],
    "a dimension of the batch": lambda h: h.t().reshape(4, 6),
    "diagonals": lambda h: h @ torch.tril(torch.ones(6, 6).to(h)),
    "interleaved": lambda h: torch.stack([h[:, :3], h[:, 3:]], -1).flatten(1) * torch.ones(6).cumsum(0).to(h),
}


@pytest.mark.parametrize("kind", APART)
def test_neurons_that_are_told_apart_stay(kind: str) -> None:
    found = permutation_structure(Between(APART[kind]), X)
    assert [(group.name, group.size) for group in permutations(found)] == [("b", 7), ("c", 8)]
    stays = [one for one in found.pinned if (one.tensor, one.axis) == ("a.weight", 0)]
    assert stays and not refused(found)


def written(h: Tensor) -> Tensor:
    found = torch.empty(8, 6).to(h)
    found[:4] = h
    found[4:] = 2 * h
    return found[2:6]


ALIKE: dict[str, Callable[[Tensor], Tensor]] = {
    "softmax": lambda h: h.softmax(-1),
    "norms": lambda h: F.normalize(F.layer_norm(h, (6,)), dim=-1),
    "its own size": lambda h: h / h.norm(dim=-1, keepdim=True) + h.amax(-1, keepdim=True),
    "equal numbers": lambda h: h * torch.full((6,), 2.0).to(h) + torch.zeros_like(h),
    "in place": lambda h: h.clone().mul_(2).relu_().add_(1),
    "through a view": lambda h: h.view(2, 2, 6).transpose(0, 1).reshape(4, 6),
    "filled": lambda h: torch.zeros(4, 6).to(h).copy_(h),
    "written into": written,
    "a number of Python": lambda h: h * float(h.abs().max()),
    "a mask by values": lambda h: h.masked_fill(h > 0.3, 0.0).where(h < 1, torch.zeros(()).to(h)),
    "its square": lambda h: h @ (h.T @ h),
    "attention over points": lambda h: F.scaled_dot_product_attention(*[h[None, None]] * 3)[0, 0],
    "einsum": lambda h: torch.einsum("nf,mf,mg->ng", h, h, h),
    "padding cut again": lambda h: F.pad(h, (1, 2))[:, 1:7],
    "twice and summed": lambda h: torch.cat([h, h], -1).view(4, 2, 6).sum(1),
    "copies": lambda h: h.repeat(1, 2).view(4, 2, 6).mean(1),
}


@pytest.mark.parametrize("kind", ALIKE)
def test_neurons_that_are_treated_alike_move(kind: str) -> None:
    found = permutation_structure(Between(ALIKE[kind]), X)
    assert [(group.name, group.size) for group in permutations(found)] == [("a", 6), ("b", 7), ("c", 8)]
    assert not refused(found) and all(drift.ok for drift in found.check())


def split_in(rows: int, function: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    return lambda h: function(h.view(4, rows, -1)).reshape(4, -1)


DEPENDENT: dict[str, tuple[Callable[[Tensor], Tensor], Counter[tuple[int, int]]]] = {
    "nothing": (lambda t: t, Counter({(2, 1): 1, (3, 2): 1})),
    "softmax inside": (lambda t: t.softmax(-1), Counter({(2, 1): 1, (3, 2): 1})),
    "softmax across": (lambda t: t.softmax(1), Counter({(3, 1): 1, (2, 3): 1})),
    "sum across": (lambda t: t * t.sum(1, keepdim=True), Counter({(3, 1): 1, (2, 3): 1})),
    "shift across": (lambda t: t.roll(1, 1), Counter({(3, 1): 1})),
    "a number for each": (lambda t: t * torch.tensor([[1.0], [2.0]]).to(t), Counter({(3, 2): 1})),
    "a number inside": (lambda t: t * torch.tensor([1.0, 2.0, 3.0]).to(t), Counter({(2, 3): 1})),
    "products of two": (lambda t: t @ (t.transpose(1, 2) @ t), Counter({(2, 1): 1, (3, 1): 1})),
    "picked apart": (lambda t: torch.stack([t[:, 0], t[:, 1].exp()], 1), Counter({(3, 1): 2})),
    "picked and joined": (lambda t: t[:, :1] + t, Counter({(3, 1): 1})),
    "picked and used whole": (lambda t: t.softmax(1) * t[:, 0].sum(), Counter({(3, 1): 1})),
}


@pytest.mark.parametrize("kind", DEPENDENT)
def test_blocks_and_what_is_inside(kind: str) -> None:
    """Six neurons as two blocks of three: which blocks move, and whether each has an order of its own inside."""
    function, expected = DEPENDENT[kind]
    found = permutation_structure(Between(split_in(2, function)), X)
    assert sizes(found) - Counter({(7, 1): 1, (8, 1): 1}) == expected
    assert not refused(found) and all(drift.ok for drift in found.check())


class Escapes(nn.Module):
    """Leaves torch on its way, where no trace follows."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(5, 6), nn.Linear(6, 2)

    def forward(self, x: Tensor) -> Tensor:
        h = self.a(x)
        sizes = np.abs(h.detach().numpy()).sum(axis=0)
        return self.b(h) + float(sizes[0])


@pytest.mark.parametrize("name", ["mobilenet", "densenet", "convnext", "unet"])
def test_the_order_in_memory_makes_no_difference(name: str) -> None:
    """Images with their channels last: torch pools them by other operations."""
    module, example = built(ZOO[name])
    last = {"memory_format": torch.channels_last}
    found = permutation_structure(module.to(**last), example.contiguous(**last))
    assert sizes(found) == Counter(one if isinstance(one, tuple) else (one, 1) for one in ZOO[name].groups)
    assert not refused(found) and not found.unknown


def test_images_stored_with_colours_last() -> None:
    """As most files have them, turned by ``permute``: the last stream of a ResNet20 with batch norm was pinned."""
    net = fs.resnet20(1)
    for name, part in list(net.named_modules()):
        if isinstance(part, nn.GroupNorm):
            parent, _, own = name.rpartition(".")
            setattr(net.get_submodule(parent), own, nn.BatchNorm2d(part.num_channels))
    found = permutation_structure(net.eval(), torch.randn(2, 8, 8, 3).permute(0, 3, 1, 2))
    assert len(permutations(found)) == 12 and not found.unknown


@pytest.mark.parametrize("kind", ["unused", "slice", "sum", "copy", "middle", "columns", "padded"])
def test_what_the_example_does_not_read_stays(kind: str) -> None:
    """A head that does not run and positions behind the length of the example: a longer input reads them."""

    class Longer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.last, self.head = nn.Linear(3, 6), nn.Linear(6, 2), nn.Linear(5, 7)
            self.p, self.q, self.table = (nn.Parameter(torch.randn(9, *more)) for more in ((), (), (6,)))

        def forward(self, x: Tensor) -> Tensor:
            h, n = torch.relu(self.first(x)), len(x)
            if kind == "slice":
                h = h * self.p[:n, None]
            elif kind == "sum":
                h = h * (self.p + self.q)[:n, None]
            elif kind == "copy":
                h = h + self.table.to(h.dtype, copy=True)[:n]
            elif kind == "middle":
                h = h * self.p[3 : 3 + n].unsqueeze(1)
            elif kind == "columns":
                h = h + self.table.T[:, :n].T
            elif kind == "padded":
                h = h + F.pad(self.table, (0, 0, 0, 3))[:n]
            return self.last(h)

    torch.manual_seed(0)
    net = Longer().double().eval()
    found = permutation_structure(net, torch.randn(4, 3, dtype=torch.float64))
    assert [group.size for group in permutations(found)] == [6]
    assert {one.tensor for one in found.pinned if "nothing read it" in one.reason} >= {"head.weight", "head.bias"}
    x = torch.randn(6 if kind == "middle" else 9, 3, dtype=torch.float64)
    torch.testing.assert_close(found.apply(net, found.random(1))(x), net(x))


class Experts(nn.Module):
    """Every token goes to two of four; the answers are added where they came from."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.router, self.last = nn.Linear(5, 6), nn.Linear(6, 4), nn.Linear(6, 2)
        self.experts = nn.ModuleList(nn.Sequential(nn.Linear(6, 7), nn.GELU(), nn.Linear(7, 6)) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        h = self.first(x)
        weights, chosen = self.router(h).softmax(-1).topk(2, -1)
        found = torch.zeros_like(h)
        for k, expert in enumerate(self.experts):
            rows, slot = torch.where(chosen == k)
            found.index_add_(0, rows, expert(h[rows]) * weights[rows, slot, None])
        return self.last(h + found)


class Grouped(nn.Module):
    """As mixtures of experts in ``transformers`` have it: rows sorted by expert, one product, rows put back."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.router, self.last = nn.Linear(5, 8), nn.Linear(8, 3), nn.Linear(8, 2)
        self.up, self.down = nn.Parameter(torch.randn(3, 8, 16)), nn.Parameter(torch.randn(3, 16, 8))

    def forward(self, x: Tensor) -> Tensor:
        h = self.first(x)
        expert, order = self.router(h).argmax(-1).sort()
        ends = torch.stack([(expert <= k).sum() for k in range(3)]).int()
        y = torch._grouped_mm(torch.relu(torch._grouped_mm(h[order], self.up, offs=ends)), self.down, offs=ends)
        back = torch.empty_like(y)
        back[order] = y
        return self.last(h + back)


def test_experts_in_one_product() -> None:
    torch.manual_seed(0)
    net, x = Grouped().eval(), torch.randn(32, 5)
    found = permutation_structure(net, x[:7])
    assert sorted(group.size for group in permutations(found)) == [8, 16] and not found.unknown
    torch.testing.assert_close(found.apply(net, found.random(1))(x), net(x), atol=1e-4, rtol=1e-4)


class Scripted(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x * torch.log(torch.tensor(3.0))


@pytest.mark.filterwarnings("ignore:.*torch.jit.script.*:DeprecationWarning")
def test_compiled_parts() -> None:
    """They take no hooks."""
    half = torch.jit.script(Scripted())
    net = nn.Sequential(nn.Linear(5, 2), half, nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 2)).double()
    found = permutation_structure(net, X.double())
    assert [group.size for group in permutations(found)] == [2, 2]


def test_a_check_that_is_cut_off_tries_groups_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """The interpreter of TorchScript raises an error of its own in the place of that of the self-check."""
    layers = [part for width in (5, 2, 2, 2) for part in (nn.Linear(width, 2), nn.Tanh())]
    net = nn.Sequential(*layers).double()
    before, asked = permutation_structure(net, X.double()), []

    def step(*arguments: Any) -> None:
        asked.append(1)
        raise RuntimeError("The following operation failed in the TorchScript interpreter.")

    monkeypatch.setattr(Influence, "step", step)
    assert permutation_structure(net, X.double()).groups == before.groups and asked


def test_experts() -> None:
    """Those that no token of the example was sent to stay as they are; the stream goes through all others."""
    torch.manual_seed(0)
    net, many = Experts().double().eval(), torch.randn(64, 5, dtype=torch.float64)
    found = permutation_structure(net, many)
    assert sorted(group.size for group in permutations(found)) == [6, 7, 7, 7, 7] and not found.unknown
    few = permutation_structure(net, many[:1])
    assert sorted(group.size for group in permutations(few)) == [7, 7]
    for one in (found, few):
        torch.testing.assert_close(one.apply(net, one.random(1))(many), net(many))


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
def test_one_step_of_a_recurrent_layer_is_not_all_of_them(kind: Any) -> None:
    """The state is zeros then, and the matrix that reads it could have any order."""

    class Sequence(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.cell, self.last = kind(3, 5, batch_first=True, bidirectional=True), nn.Linear(10, 2)

        def forward(self, x: Tensor) -> Tensor:
            return self.last(self.cell(x)[0])

    torch.manual_seed(0)
    net, x = Sequence().double().eval(), torch.randn(2, 4, 3, dtype=torch.float64)
    for example in (x[:, :1], x):
        found = permutation_structure(net, example)
        torch.testing.assert_close(found.apply(net, found.random(1))(x), net(x))
    assert [group.size for group in permutations(found)] == [5, 5]


@pytest.mark.parametrize("place", ["windows", "turned", "shifted"])
def test_other_strides_pin(place: str) -> None:
    class Strided(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.last = nn.Linear(3, 4), nn.Linear(4, 2)

        def forward(self, x: Tensor) -> Tensor:
            h = torch.relu(self.first(x))
            if place == "windows":
                return self.last(h.as_strided((3, 4), (3, 1)))  # four of every five: they overlap
            if place == "shifted":
                return self.last(torch.cat([h, h[:1]]).as_strided((len(h), 4), (4, 1), 1))
            return self.last(h.as_strided((4, 4), (1, 4)))  # points in the place of neurons

    torch.manual_seed(0)
    found = permutation_structure(Strided(), torch.randn(4, 3))
    assert not permutations(found) and found.unknown == ("as_strided",)


def test_what_no_rule_sees_the_self_check_does() -> None:
    found = permutation_structure(Escapes(), X)
    assert not found.groups
    reasons = refused(found)  # of the permutations, and of the factors
    assert sorted(reason.split(" moves")[0] for reason in reasons) == [
        "self-check: a random element of a",
        "self-check: a random element of a*",
    ]


def test_unknown_operations_are_listed() -> None:
    found = permutation_structure(Between(APART["an unknown operation"]), X)
    assert any("fft" in name for name in found.unknown)
    assert any("no rule" in one.reason for one in found.pinned if one.tensor == "a.weight")


class Buffers(nn.Module):
    def __init__(self, persistent: bool) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(5, 6), nn.Linear(6, 2)
        self.register_buffer("scale", torch.rand(6), persistent=persistent)

    def forward(self, x: Tensor) -> Tensor:
        return self.b(self.a(x).relu() * self.scale)


def test_only_stored_buffers_move() -> None:
    assert [group.size for group in permutations(permutation_structure(Buffers(True), X))] == [6]
    found = permutation_structure(Buffers(False), X)
    assert not permutations(found)
    assert {one.reason for one in found.pinned if one.tensor == "b.weight"} >= {"scale: a buffer that is not stored"}


def test_outputs_stay() -> None:
    class Shows(Between):
        def forward(self, x: Tensor) -> Any:
            h = self.a(x)
            return {"logits": self.d(self.c(self.b(h))), "hidden": h}

    net = Shows(lambda h: h)
    assert [group.name for group in permutations(permutation_structure(net, X))] == ["a", "b", "c"]
    assert [group.name for group in permutations(permutation_structure(net, X, output="hidden"))] == ["b", "c", "d"]
    every = permutation_structure(net, X, output=lambda found: torch.cat(list(found.values()), 1))
    assert [group.name for group in permutations(every)] == ["b", "c"]


def test_tied_layers_move_as_far_as_they_can() -> None:
    net = nn.Sequential(nn.Linear(3, 6), nn.ReLU(), nn.Linear(6, 6), nn.ReLU(), nn.Linear(6, 6), nn.Linear(6, 2))
    net[4].weight = net[2].weight
    found = permutation_structure(net, torch.randn(2, 3))
    assert [(group.name, len(group.axes)) for group in permutations(found)] == [("0", 7)]
    twice = nn.Linear(6, 6)
    again = permutation_structure(
        nn.Sequential(nn.Linear(3, 6), twice, nn.Tanh(), twice, nn.Linear(6, 1)), torch.rand(2, 3)
    )
    assert [(group.name, len(group.axes)) for group in permutations(again)] == [("0", 6)]


def test_parametrised_modules_move_by_their_effective_weights() -> None:
    net = break_symmetry(nn.Sequential(nn.Linear(5, 6), nn.ReLU(), nn.Linear(6, 2)), "w", 0)
    before = deepcopy(net.state_dict())
    found = permutation_structure(net, X)
    moved = found.apply(net, found.random(0))
    assert [group.size for group in permutations(found)] == [6]
    assert torch.allclose(moved(X), net(X), atol=1e-6) and "0.weight" in moved.state_dict()
    assert all(torch.equal(value, before[key]) for key, value in net.state_dict().items())
    weighted = nn.Sequential(nn.utils.parametrizations.weight_norm(nn.Linear(5, 6)), nn.ReLU(), nn.Linear(6, 2))
    assert [group.size for group in permutations(permutation_structure(weighted, X))] == [6]


@pytest.mark.parametrize("norm", [torch.nn.utils.weight_norm, torch.nn.utils.spectral_norm])
@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_weights_that_are_computed_before_every_call(norm: Any) -> None:
    """The way of torch before there were parametrisations: such modules keep tensors that torch does not copy."""
    torch.manual_seed(0)
    net, x = nn.Sequential(norm(nn.Linear(5, 6)), nn.ReLU(), nn.Linear(6, 2)).double().eval(), X.double()
    before = net(x)
    found = permutation_structure(net, x)
    assert [group.size for group in permutations(found)] == [6]
    moved = found.apply(net, found.random(1))
    assert list(moved.state_dict()) == ["0.weight", "0.bias", "2.weight", "2.bias"]
    torch.testing.assert_close(moved(x), before)
    assert torch.equal(net(x), before) and "0.weight" not in dict(net.named_parameters())
    assert torch.equal(fs.interpolate(net, net, 0.5)(x), before)


def test_the_caller_sees_nothing() -> None:
    net = nn.Sequential(nn.Linear(5, 6), nn.Dropout(), nn.BatchNorm1d(6), nn.Linear(6, 2)).train()
    state = torch.random.get_rng_state()
    before = deepcopy(net.state_dict())
    permutation_structure(net, X)
    assert net.training and all(part.training for part in net.modules())
    assert torch.equal(torch.random.get_rng_state(), state)
    assert all(torch.equal(value, before[key]) for key, value in net.state_dict().items())
    assert not any(part._forward_hooks or part._forward_pre_hooks for part in net.modules())
    assert torch.backends.mha.get_fastpath_enabled()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_own_types(dtype: torch.dtype) -> None:
    net = Between(F.relu).to(dtype)
    found = permutation_structure(net, X.to(dtype))
    assert [group.size for group in permutations(found)] == [6, 7, 8]
    moved = found.apply(net, found.random(0))
    assert all(p.dtype == dtype for p in moved.parameters())


def test_bad_input() -> None:
    net = nn.Sequential(nn.Linear(5, 6), nn.ReLU(), nn.Linear(6, 2))
    with pytest.raises(InputError, match="it does not run on the example"):
        permutation_structure(net, torch.zeros(2, 4))
    with pytest.raises(InputError, match="example: expected arrays"):
        permutation_structure(net, None)
    with pytest.raises(InputError, match="found by permutation_structure"):
        Structure(()).check()
    assert not Drift("g", float("nan"), 1.0).ok
    assert fs.permutation_structure is permutation_structure


def test_networks_are_modules_too() -> None:
    found = permutation_structure(fs.Network.random((3, 4, 5, 2), 0), np.zeros((2, 3)))
    assert [group.size for group in permutations(found)] == [4, 5]


# -- positive scalings -------------------------------------------------------------------------------------------------


def powers(structure: Structure) -> list[dict[str, int]]:
    return [
        {f"{axis.tensor}:{axis.axis}": axis.power for axis in group.axes} for group in structure.only(SCALING).groups
    ]


def two(*between: nn.Module, width: int = 6) -> nn.Sequential:
    return nn.Sequential(nn.Linear(5, width), *between, nn.Linear(6, 2))


PLAIN = {"0.weight:0": 1, "0.bias:0": 1, "2.weight:1": -1}
SCALED: dict[str, tuple[nn.Module, list[dict[str, int]]]] = {
    "relu": (two(nn.ReLU()), [PLAIN]),
    "leaky": (two(nn.LeakyReLU(0.1)), [PLAIN]),
    "in place": (two(nn.ReLU(inplace=True)), [PLAIN]),
    "linear": (two(nn.Identity()), [PLAIN]),
    "prelu": (two(nn.PReLU(6)), [PLAIN]),
    "gelu": (two(nn.GELU()), []),
    "tanh": (two(nn.Tanh()), []),
    "relu6": (two(nn.ReLU6()), []),
    "batch norm": (two(nn.BatchNorm1d(6), nn.ReLU()), [{"1.weight:0": 1, "1.bias:0": 1, "3.weight:1": -1}]),
    "layer norm": (two(nn.LayerNorm(6), nn.ReLU()), [{"1.weight:0": 1, "1.bias:0": 1, "3.weight:1": -1}]),
    "glu": (two(nn.GLU(), width=12), []),
    "softmax": (two(nn.Softmax(-1)), []),
}


@pytest.mark.parametrize("kind", SCALED)
def test_scalings(kind: str) -> None:
    net, expected = SCALED[kind]
    found = permutation_structure(net, X)
    assert powers(found) == expected and not refused(found)
    assert all(drift.ok for drift in found.check())


class Gated(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gate, self.up, self.down = nn.Linear(5, 6), nn.Linear(5, 6), nn.Linear(6, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(F.silu(self.gate(x)) * self.up(x))


class Skip(nn.Module):
    """A stream that one layer reads and writes."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.c = nn.Linear(5, 6), nn.Linear(6, 6), nn.Linear(6, 2)

    def forward(self, x: Tensor) -> Tensor:
        h = F.relu(self.a(x))
        return self.c(h + F.relu(self.b(h)))


def test_scalings_of_gates_skips_and_convolutions() -> None:
    assert powers(permutation_structure(Gated(), X)) == [{"up.weight:0": 1, "up.bias:0": 1, "down.weight:1": -1}]
    (stream,) = powers(permutation_structure(Skip(), X))
    assert stream == {
        "a.weight:0": 1,
        "a.bias:0": 1,
        "b.weight:0": 1,
        "b.bias:0": 1,
        "b.weight:1": -1,
        "c.weight:1": -1,
    }
    module, example = built(ZOO["vgg"])
    assert [sorted(one.values()) for one in powers(permutation_structure(module, example))] == [[-1, 1, 1]] * 3


def test_scalings_of_llama() -> None:
    """Norms into their readers, values into their readers, and queries against keys inside a rotary pair."""
    module, example = built(HF["llama"])
    found = powers(permutation_structure(module, example))
    assert {f"{LAYER}.q_proj.weight:0": 1, f"{LAYER}.k_proj.weight:0": -1} in found
    assert {f"{LAYER}.v_proj.weight:0": 1, f"{LAYER}.o_proj.weight:1": -1} in found
    norm = {"model.layers.0.input_layernorm.weight:0": 1} | {f"{LAYER}.{key}_proj.weight:1": -1 for key in "qkv"}
    assert norm in found or {key: -power for key, power in norm.items()} in found
