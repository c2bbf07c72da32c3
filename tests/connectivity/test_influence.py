"""Several groups in one run: of each it says what a run of its own does; wrong ones do not cover each other."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from fiberscope.connectivity.influence import Recorder
from fiberscope.connectivity.selfcheck import Probe
from fiberscope.connectivity.structure import permutation_structure
from fiberscope.modules.action import SCALING, Axis, Group, Loop


class Meeting(nn.Module):
    """``sum_i a_i(x) b_i``: two orders that are wrong alone and right together; they meet behind a detour."""

    def __init__(self, detour: Callable[[Tensor], Tensor], n: int = 2) -> None:
        super().__init__()
        self.a, self.b, self.detour = nn.Parameter(torch.randn(n, 3)), nn.Parameter(torch.randn(n)), detour

    def forward(self, x: Tensor) -> Tensor:
        return (self.detour(x @ self.a.T) * self.b).sum(-1, keepdim=True)


def by_item(h: Tensor) -> Tensor:
    return torch.stack([torch.full((), value.item(), dtype=h.dtype) for value in h.flatten()]).reshape(h.shape)


DETOURS: dict[str, Callable[[Tensor], Tensor]] = {
    "none": lambda h: h,
    "a view": lambda h: h.t().t(),
    "written in place": lambda h: torch.zeros_like(h).copy_(h),
    "a mask": lambda h: torch.where(h > 0, 2.0, 1.0).to(h),
    "numpy": lambda h: torch.from_numpy(h.numpy().copy()),
    "numbers": by_item,
    "large values": lambda h: (h + 1e12) - 1e12,
}


@pytest.mark.parametrize("detour", DETOURS)
def test_what_is_wrong_alone_is_not_right_together(detour: str, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    net, x = Meeting(DETOURS[detour]), torch.randn(64, 3)
    probe = Probe(net, x, None, 0)
    changes = {name: {name: probe.own[name].detach().flip(0)} for name in "ab"}
    assert probe.drift("both", {"a": changes["a"]["a"], "b": changes["b"]["b"]}).ok
    assert not any(probe.drift(name, changes[name]).ok for name in "ab")
    assert not probe.apart(changes)[0]
    wrong = tuple(Group(name, 2, (Axis(name, 0),)) for name in "ab")
    monkeypatch.setattr("fiberscope.connectivity.structure.groups_of", lambda trace: wrong)
    assert not permutation_structure(net, x).groups


@pytest.mark.parametrize("n", [2, 3, 4, 10, 11, 12, 40])
def test_halves_of_a_group_are_not_right_together(n: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Narrow ones are tried by themselves; wide ones together, with elements that are drawn for each."""
    net, x = Meeting(lambda h: h, n), torch.randn(8, 3)
    orders = tuple(Group(name, n, (Axis(name, 0),)) for name in "ab")
    loops = (Loop(0, n),)
    factors = tuple(
        Group(f"{name}*", 1, (Axis(name, 0, copies=loops, power=power),), copies=n, kind=SCALING)
        for name, power in (("a", 1), ("b", -1))
    )
    both = Group("both", n, (Axis("a", 0), Axis("b", 0)))
    for seed in range(3):
        for wrong in (orders, factors):
            monkeypatch.setattr("fiberscope.connectivity.structure.groups_of", lambda trace, g=wrong: (both, *g))
            found = permutation_structure(net, x, seed=seed)
            assert found.groups == (both,)
            assert {pin.reason.split(" moves")[0] for pin in found.pinned[-2:]} == {
                f"self-check: a random element of {group.name}" for group in wrong
            }


def test_groups_that_do_not_meet_are_tried_in_one_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Six layers, of which every second one is hidden: three groups and one run for all of them."""
    parts = (nn.Linear(3, 5), nn.ReLU(), nn.Linear(5, 3), nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 3))
    net = nn.Sequential(*parts, nn.Linear(3, 6), nn.GELU(), nn.Linear(6, 2))
    probe = Probe(net, torch.randn(4, 3), None, 0)
    changes = {
        f"{k}": {f"{k}.{name}": probe.own[f"{k}.{name}"].detach().flip(0) for name in ("weight", "bias")}
        | {f"{k + 2}.weight": probe.own[f"{k + 2}.weight"].detach().flip(1)}
        for k in (0, 3, 6)
    }
    calls, outputs = [], Probe._outputs

    def counted(self: Probe, *seen: Recorder) -> object:
        calls.append(self)
        return outputs(self, *seen)

    monkeypatch.setattr(Probe, "_outputs", counted)
    assert probe.apart(changes) == ({"0", "3", "6"}, set())
    assert len(calls) == 1
    del changes["3"]["5.weight"]  # half of a group
    assert probe.apart(changes)[0] == set()
    assert [probe.drift(name, changes[name]).ok for name in ("0", "3", "6")] == [True, False, True]


def test_the_run_says_who_met() -> None:
    net = nn.Sequential(nn.Linear(3, 5), nn.Linear(5, 4), nn.ReLU(), nn.Linear(4, 2))
    probe = Probe(net, torch.randn(4, 3), None, 0)
    turned = {name: value.detach() for name, value in probe.own.items()}
    changes = {
        "first": {"0.weight": turned["0.weight"].flip(0), "0.bias": turned["0.bias"].flip(0)},
        "second": {"1.weight": turned["1.weight"].flip(1)},
    }
    right, met = probe.apart(changes)
    assert right == set() and met == {frozenset({"first", "second"})}
