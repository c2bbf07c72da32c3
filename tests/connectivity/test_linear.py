"""Every group as the group it is: invertible maps of heads, rotary pairs; larger ones are wrong and never emitted."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
import torch
from torch import nn

import fiberscope as fs
from fiberscope.connectivity.rotations import CENTRED, INVERTIBLE, ORTHOGONAL, ROTARY, Rotations, moved_by
from fiberscope.connectivity.selfcheck import Probe, draw
from fiberscope.connectivity.structure import Structure, permutation_structure
from fiberscope.errors import InputError
from fiberscope.modules.action import SCALING, Axis, Group
from fiberscope.modules.calls import call, select

from .test_structure import built
from .zoo import ZOO, Entry, hugging

LLAMA = {(INVERTIBLE, 4, 2): 2, (ROTARY, 2, 4): 2}
EXPECTED = {
    "llama": {(ORTHOGONAL, 24, 1): 1, **LLAMA},
    "llama-tied": LLAMA,
    "qwen2": {(ORTHOGONAL, 24, 1): 1, **LLAMA},
    "gpt2": {(INVERTIBLE, 4, 6): 4},
    "vit": {(CENTRED, 12, 1): 1, (INVERTIBLE, 4, 3): 4},
    "vgg": {},
    "gptj": {(CENTRED, 24, 1): 1, (INVERTIBLE, 4, 6): 2, (ROTARY, 2, 12): 2},
    "gpt-neox": {(CENTRED, 24, 1): 1, (INVERTIBLE, 4, 6): 2, (INVERTIBLE, 2, 6): 2, (ROTARY, 2, 6): 2},
}
HEADS = {"n_head": 2, "n_layer": 1, "vocab_size": 20, "n_positions": 8, "bos_token_id": 0, "eos_token_id": 1}
WIDE = {"hidden_size": 16, "num_attention_heads": 2, "num_hidden_layers": 1, "intermediate_size": 8, "vocab_size": 20}
PARTIAL = {
    "neighbours, half of the head": hugging("GPTJForCausalLM", {"n_embd": 16, "n_inner": 8, "rotary_dim": 4, **HEADS}),
    "halves of half of the head": hugging(
        "GPTNeoXForCausalLM",
        {**WIDE, "rope_parameters": {"rope_type": "default", "partial_rotary_factor": 0.5, "rope_theta": 100.0}},
    ),
}


@pytest.mark.parametrize("name", EXPECTED)
def test_each_as_the_group_it_is(name: str) -> None:
    """Values, and queries with keys where nothing turns them, invertible; rotary pairs; streams by rotations only."""
    module, example = built(ZOO[name])
    draw(module, 1)
    structure = permutation_structure(module, example)
    found = fs.linear_groups(structure)
    assert Counter((block.kind, block.size, block.copies) for block in found.blocks) == EXPECTED[name]
    before = {key: value.clone() for key, value in module.state_dict().items()}
    maps = found.random(3)
    moved = found.apply(module, maps)
    with torch.no_grad():
        old, new = (select(call(one, example)) for one in (module, moved))
    assert torch.allclose(old, new, atol=2e-4 * float(old.abs().max()))
    assert all(torch.equal(value, before[key]) for key, value in module.state_dict().items())
    back = found.apply(moved, {key: torch.linalg.inv(value) for key, value in maps.items()})
    folded = found.apply(module, {})
    for key, value in folded.state_dict().items():
        assert torch.allclose(back.state_dict()[key], value, atol=1e-4)


def test_rotary_pairs_are_no_larger() -> None:
    """Any map of a pair but rotations with a factor moves the outputs; so does one that differs between query heads."""
    module, example = built(ZOO["llama"])
    structure = permutation_structure(module, example)
    pairs = next(block for block in fs.linear_groups(structure).blocks if block.kind == ROTARY)
    probe, source = Probe(module, example, None, seed=5), torch.Generator().manual_seed(0)
    assert moved_by(Rotations((pairs,), (), {}), probe, source).ok
    assert not moved_by(Rotations((replace(pairs, kind=INVERTIBLE),), (), {}), probe, source).ok
    mirror = torch.diag(torch.tensor([1.0, -1.0], dtype=torch.float64)).expand(4, 2, 2)
    changed = Rotations((pairs,), (), {}).act(probe.own, {pairs.name: mirror})
    assert not probe.drift("mirror", changed).ok
    queries = [axis for axis in pairs.axes if "q_proj" in axis.tensor]
    assert not moved_by(Rotations((replace(pairs, axes=tuple(queries)),), (), {}), probe, source).ok


@pytest.mark.parametrize("kind", PARTIAL)
def test_partial_rotary_pairs(kind: str) -> None:
    """Two heads of eight dimensions, four of which turn: two pairs each, and any map of the other four."""
    entry = Entry(PARTIAL[kind], lambda: {"input_ids": torch.randint(3, 20, (2, 5))}, ())
    module, example = built(entry)
    found = fs.linear_groups(permutation_structure(module, example))
    kinds = Counter((block.kind, block.size, block.copies) for block in found.blocks if block.copies > 1)
    assert kinds == {(INVERTIBLE, 8, 2): 1, (INVERTIBLE, 4, 2): 1, (ROTARY, 2, 4): 1}
    pairs = next(block for block in found.blocks if block.kind == ROTARY)
    probe, source = Probe(module, example, None, seed=5), torch.Generator().manual_seed(0)
    assert moved_by(Rotations((pairs,), (), {}), probe, source).ok
    other = {1: 2, 2: 1}  # pairs of the other kind
    crossed = tuple(
        replace(axis, stride=other[axis.stride], copies=(axis.copies[0], replace(axis.copies[1], stride=axis.stride)))
        for axis in pairs.axes
    )
    for wrong in (replace(pairs, axes=crossed), replace(pairs, kind=INVERTIBLE), replace(pairs, axes=pairs.axes[:1])):
        assert not moved_by(Rotations((wrong,), (), {}), probe, source).ok


def test_queries_against_keys_in_a_fused_tensor() -> None:
    module, example = built(ZOO["gpt2"])
    found = permutation_structure(module, example).only(SCALING)
    mine = [group for group in found.groups if group.parents[-1:] == ("transformer.h.0.attn.c_attn:1",)]
    assert [(group.copies, sorted({axis.power for axis in group.axes})) for group in mine] == [(24, [-1, 1])]
    assert all(drift.ok for drift in found.check(seed=4))


class Crossed(nn.Module):
    """Squares of differences: two numbers change places in both layers, or in none."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Parameter(torch.randn(2, 3)), nn.Parameter(torch.randn(2, 3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return ((x @ self.a.T) * (x @ self.b.T)).sum(-1, keepdim=True)


def test_wrong_groups_that_are_right_together_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every group is tried by itself: swaps that undo each other do not hide."""
    wrong = tuple(Group(name, 2, (Axis(name, 0),)) for name in "ab")
    monkeypatch.setattr("fiberscope.connectivity.structure.groups_of", lambda trace: wrong)
    both = Structure(wrong, source=(Crossed(), torch.randn(4, 3), None))
    assert both.check()[-1].ok and not any(drift.ok for drift in both.check()[:-1])
    found = permutation_structure(Crossed(), torch.randn(4, 3))
    assert not found.groups
    named = [one.reason.split(" moves")[0] for one in found.pinned if "self-check" in one.reason]
    assert named == ["self-check: a random element of a", "self-check: a random element of b"]


def test_a_structure_without_its_module_is_refused() -> None:
    with pytest.raises(InputError, match="found by permutation_structure"):
        fs.linear_groups(Structure(()))
