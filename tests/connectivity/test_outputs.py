"""Models as people have them: outputs that are dicts, tuples or objects, keyword inputs, half precision, many heads."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import fiberscope as fs
from fiberscope.connectivity.selfcheck import Probe
from fiberscope.connectivity.structure import permutation_structure
from fiberscope.errors import InputError
from fiberscope.modules.batches import batches
from fiberscope.modules.calls import select, tensors

rng = np.random.default_rng(0)
X = rng.normal(size=(60, 5))
Y = rng.integers(0, 3, 60)


@dataclass
class Output:
    """As ``transformers`` gives them, without its dict behind."""

    loss: Tensor | None
    logits: Tensor
    hidden: Tensor


class Named(NamedTuple):
    logits: Tensor
    hidden: Tensor


class ModelOutput(OrderedDict[str, Any]):
    """An ordered dict with fields, and integer places, as ``transformers.utils.ModelOutput``."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError as error:
            raise AttributeError(name) from error


FORMS: dict[str, Callable[[Tensor, Tensor], Any]] = {
    "tensor": lambda y, h: y,
    "dict": lambda y, h: {"hidden": h, "logits": y},
    "one": lambda y, h: {"prediction": y, "note": "text"},
    "tuple": lambda y, h: (y,),
    "object": lambda y, h: Output(None, y, h),
    "named": Named,
    "model output": lambda y, h: ModelOutput(loss=None, logits=y, hidden=h),
}


class Net(nn.Module):
    """An MLP that gives its result in some form."""

    def __init__(self, form: str = "tensor", seed: int = 0, form_of: Any = None, keyword: bool = False) -> None:
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            self.first, self.second, self.last = nn.Linear(5, 8), nn.Linear(8, 8), nn.Linear(8, 3)
        self.form = form_of or FORMS[form]

    def forward(self, x: Tensor, mask: Tensor | None = None, double: bool = False) -> Any:
        hidden = torch.relu(self.second(torch.relu(self.first(x))))
        y = self.last(hidden)
        y = y if mask is None else y * mask[:, None]
        return self.form(2 * y if double else y, hidden.detach())


def pair(**options: Any) -> tuple[Net, Net]:
    return Net(seed=0, **options), Net(seed=1, **options)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("engine", ["loop", "vmap", "auto"])
def test_the_form_of_the_output_does_not_matter(form: str, engine: str) -> None:
    plain = fs.barrier(*pair(), "cross_entropy", (X, Y), 5, engine="loop")
    found = fs.barrier(*pair(form=form), "cross_entropy", (X, Y), 5, engine=engine)
    assert np.allclose(found.curve, plain.curve, rtol=1e-5)
    assert found.accuracy is not None and plain.accuracy is not None
    assert np.allclose(found.accuracy.values, plain.accuracy.values)
    a, b = pair(form=form)
    assert isinstance(fs.interpolate(a, b, 0.5), Net)
    moments = fs.record_activations(a, "second", X)["second"]
    assert np.array_equal(moments.mean, fs.record_activations(Net(), "second", X)["second"].mean)
    assert fs.record_inputs(a, ["last"], X)["last"].count == 60
    assert fs.chord_deviation(a, b, X).worst == pytest.approx(fs.chord_deviation(*pair(), X).worst)
    assert fs.match(a, b, data=X).samples == 60


AMBIGUOUS = {
    "two": lambda y, h: (h, y),
    "keys": lambda y, h: {"a": y, "b": h},
    "nested": lambda y, h: {"deep": {"a": y, "b": h}},
    "nothing": lambda y, h: None,
}


@pytest.mark.parametrize("form", AMBIGUOUS)
def test_an_output_without_one_tensor_is_refused_in_one_line(form: str) -> None:
    a, b = pair(form_of=AMBIGUOUS[form])
    for call in (
        lambda: fs.barrier(a, b, "cross_entropy", (X, Y), 3),
        lambda: fs.barrier(a, b, "mse", (X, Y), 3, engine="vmap"),
        lambda: fs.chord_deviation(a, b, X),
    ):
        with pytest.raises(InputError, match=r"expected one tensor, got .*output=") as caught:
            call()
        assert "\n" not in str(caught.value)


def test_selectors_and_losses_of_whole_outputs() -> None:
    plain = fs.barrier(*pair(), "cross_entropy", (X, Y), 5).curve

    def whole(output: Any, target: Tensor) -> Tensor:
        return nn.functional.cross_entropy(output["a"], target, reduction="none")

    a, b = pair(form_of=AMBIGUOUS["keys"])
    for options in ({"output": "a"}, {"output": 0}, {"output": lambda out: out["a"]}):
        assert np.allclose(fs.barrier(a, b, "cross_entropy", (X, Y), 5, **options).curve, plain, rtol=1e-5)
        assert fs.chord_deviation(a, b, X, **options).worst > 0
    found = fs.barrier(a, b, whole, (X, Y), 5)
    assert np.allclose(found.curve, plain, rtol=1e-5) and found.accuracy is None
    c, d = pair(form_of=AMBIGUOUS["two"])
    assert np.allclose(fs.barrier(c, d, "cross_entropy", (X, Y), 5, output=-1).curve, plain, rtol=1e-5)
    for wrong in ("nowhere", 7, lambda out: "text"):
        with pytest.raises(InputError, match="output: expected"):
            fs.barrier(a, b, "cross_entropy", (X, Y), 3, output=wrong)
    with pytest.raises(InputError, match="loss: expected one number or one per point, got dict"):
        fs.barrier(a, b, lambda out, y: out, (X, Y), 3)


def test_keyword_inputs() -> None:
    mask = np.ones(60)
    plain = fs.barrier(*pair(), "cross_entropy", (X, Y), 5, batch_size=7)
    a, b = pair(form="object")
    keywords = {"x": X, "mask": mask}
    loader = [({"x": X[i : i + 9], "mask": mask[i : i + 9]}, Y[i : i + 9]) for i in range(0, 60, 9)]
    labelled = [{"x": x["x"], "labels": y} for x, y in loader]
    for data in ((keywords, Y), loader, labelled, {**keywords, "labels": Y}):
        found = fs.barrier(a, b, "cross_entropy", data, 5, batch_size=7)
        assert found.samples == 60 and np.allclose(found.curve, plain.curve, rtol=1e-5)
        assert fs.record_inputs(a, ["last"], data, batch_size=7)["last"].count == 60
        assert fs.match(a, b, data=data, batch_size=7).samples == 60
        assert fs.chord_deviation(a, b, data, batch_size=7).worst > 0
    twice = fs.record_activations(a, "last", {"x": X, "double": True})["last"]
    assert np.array_equal(twice.mean, fs.record_activations(a, "last", X)["last"].mean)
    for wrong, text in (
        ({"x": X, "mask": mask[:3]}, r"got x \(60, 5\), mask \(3,\)"),
        (({"x": X}, Y[:4]), r"got x \(60, 5\), targets \(4,\)"),
        ({"flag": True}, "expected"),
        ({}, "expected"),
        ({"labels": Y}, "at least one array among the inputs"),
    ):
        with pytest.raises(InputError, match=text):
            list(batches(wrong, a))
    with pytest.raises(InputError, match="inputs alone"):
        fs.barrier(a, b, "cross_entropy", keywords, 3)


def test_selecting_by_hand() -> None:
    y, h = torch.zeros(2), torch.ones(3)
    assert select({1: y, 0: h}, 0) is h  # a key before a place
    assert [t.shape[0] for t in tensors({"a": (y, [h]), "b": Output(None, y, h), "c": "text"})] == [2, 3, 2, 3]


# -- half precision ----------------------------------------------------------------------------------------------------

HALVES = [torch.bfloat16, torch.float16]


@pytest.mark.parametrize("dtype", HALVES)
def test_half_precision_everywhere(dtype: torch.dtype) -> None:
    a, b = (net.to(dtype) for net in pair(form="object"))
    wide = [net.double() for net in (Net(seed=0).to(dtype), Net(seed=1).to(dtype))]
    found, reference = (fs.barrier(*nets, "cross_entropy", (X, Y), 5) for nets in ((a, b), wide))
    assert np.abs(found.curve - reference.curve).max() < 0.05
    middle = fs.interpolate(a, b, 0.5)
    assert middle.first.weight.dtype == dtype
    assert fs.record_inputs(a, None, X)["last"].second_moment.dtype == np.float64
    matching = fs.match(a, a, data=X)
    assert all((p == range(len(p))).all() for p in matching.permutations.values())
    broken = fs.break_symmetry(a, "w", 3, fixed=2)
    plain = fs.effective_weights(broken)
    assert plain.first.weight.dtype == dtype
    inputs = torch.from_numpy(X).to(dtype)
    assert torch.equal(broken(inputs).logits, plain(inputs).logits)
    assert fs.neuron_classes(broken.first, X).coherence > 0
    assert fs.chord_deviation(a, b, X).worst > 0
    image = nn.Sequential(nn.Conv2d(1, 2, 3, padding=1, padding_mode="reflect")).to(dtype)
    seen = fs.record_inputs(image, ["0"], rng.normal(size=(4, 1, 6, 6)))["0"]
    assert seen.count == 4 * 36 and np.isfinite(seen.second_moment).all()


# -- permutation structures --------------------------------------------------------------------------------------------


class CoarseNorm(nn.Module):
    """A norm that computes in a type of its own, as those of transformers do."""

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        self.dtype = dtype

    def forward(self, x: Tensor) -> Tensor:
        y = x.to(self.dtype)
        return (y * torch.rsqrt(y.square().mean(-1, keepdim=True) + 1e-6)).to(x.dtype)


def coarse(dtype: torch.dtype, seed: int = 0) -> nn.Sequential:
    torch.manual_seed(seed)
    parts = (nn.Linear(5, 64), CoarseNorm(dtype), nn.ReLU(), nn.Linear(64, 64), CoarseNorm(dtype), nn.Linear(64, 3))
    return nn.Sequential(*parts)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, *HALVES])
@pytest.mark.parametrize("seed", range(3))
def test_norms_in_a_coarser_type_are_no_reason_to_refuse(dtype: torch.dtype, seed: int) -> None:
    x = torch.from_numpy(X)
    net = coarse(dtype, seed)
    structure = permutation_structure(net, x)
    assert [group.size for group in structure.groups] == [64, 64]
    for k in range(3):
        for found in structure.check(seed=k):
            assert found.ok and (found.allowed == 1e-9) == (dtype == torch.float64)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, *HALVES])
def test_a_wrong_structure_is_refused_at_every_precision(dtype: torch.dtype) -> None:
    x = torch.from_numpy(X)
    net = coarse(dtype)
    structure = permutation_structure(net, x)
    probe = Probe(net, x, None)
    for group in structure.groups:
        for axis in group.axes:
            rest = tuple(other for other in group.axes if other != axis)
            cut = type(structure)((type(group)(group.name, group.size, rest, group.readers),))
            found = probe.drift("", cut.act(probe.own, cut.random(0)))
            # a bias alone may weigh less than the coarsest types can see
            assert not found.ok or (axis.tensor.endswith("bias") and dtype in HALVES)


class FixedType(nn.Module):
    """A module that cannot run in float64."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(5, 6), nn.Linear(6, 2)

    def forward(self, x: Tensor) -> Tensor:
        weight = self.first.weight.float()
        result: Tensor = self.last(torch.relu(self.first(x) + 0 * nn.functional.linear(x, weight)))
        return result


def test_modules_that_do_not_run_in_float64_are_checked_in_their_own_type() -> None:
    structure = permutation_structure(FixedType(), torch.from_numpy(X).float()).only("permutation")
    assert [group.readers for group in structure.groups] == [("last",)]


class Heads(nn.Module):
    """Two layers read one; sizes agree by accident or not."""

    def __init__(self, hidden: int, left: int, right: int, skip: bool = False, show: bool = False) -> None:
        super().__init__()
        self.body, self.left, self.right = nn.Linear(5, hidden), nn.Linear(hidden, left), nn.Linear(hidden, right)
        self.norm, self.skip, self.show = nn.LayerNorm(hidden), skip, show

    def forward(self, x: Tensor) -> Any:
        h = nn.functional.relu(self.norm(self.body(x)), inplace=True)
        left = self.left(h)
        right = self.right(h + left if self.skip else h)
        return {"left": left, "right": right, **({"hidden": h} if self.show else {})}


@pytest.mark.parametrize(("hidden", "left", "right"), [(8, 3, 2), (8, 8, 8), (4, 4, 1), (6, 1, 6)])
def test_two_readers_of_one_layer_are_both_found(hidden: int, left: int, right: int) -> None:
    net = Heads(hidden, left, right)
    nn.init.normal_(net.norm.weight)
    structure = permutation_structure(net, torch.from_numpy(X).float()).only("permutation")
    (group,) = structure.groups
    assert group.name == "body" and group.readers == ("left", "right") and group.size == hidden
    moved = structure.apply(net, structure.random(3))
    inputs = torch.from_numpy(X).float()
    for key, value in net(inputs).items():
        assert torch.allclose(moved(inputs)[key], value, atol=1e-5)
    found = fs.match(net, moved, data=X)
    assert found.samples == 60 and found.objective == pytest.approx(1.0, abs=0.01)


def test_what_is_shown_stays() -> None:
    x = torch.from_numpy(X).float()
    assert (
        not permutation_structure(Heads(4, 4, 2, skip=True), x).only("permutation").groups
    )  # the skip ties it to an output
    assert (
        not permutation_structure(Heads(4, 3, 2, show=True), x).only("permutation").groups
    )  # the neurons themselves are shown
    kept = permutation_structure(Heads(4, 3, 2, show=True), x, output="right").only("permutation")
    assert [(group.name, group.readers) for group in kept.groups] == [("body", ("left", "right")), ("left", ())]
