"""Orthogonal groups: the sound ones are found, the wrong ones never; Procrustes and learned maps do no harm."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import fiberscope as fs
from fiberscope.connectivity.rotations import CENTRED, ORTHOGONAL, nearest
from fiberscope.connectivity.selfcheck import draw
from fiberscope.errors import InputError
from fiberscope.modules.action import Group
from fiberscope.modules.calls import call, select

from .test_structure import built
from .zoo import ZOO

EXPECTED = {
    "llama": {
        ("model.embed_tokens", ORTHOGONAL),
        *((f"model.layers.{k}.self_attn.v_proj:1", ORTHOGONAL) for k in (0, 1)),
    },
    "llama-tied": {(f"model.layers.{k}.self_attn.v_proj:1", ORTHOGONAL) for k in (0, 1)},
    "gpt2": {(f"transformer.h.{k}.attn.c_attn:{i}", ORTHOGONAL) for k in (0, 1) for i in (1, 5)},
    "vit": {("cls", CENTRED), *((f"blocks.{k}.attn.qkv:{i}", ORTHOGONAL) for k in (0, 1) for i in (1, 5))},
    "vgg": set(),
}


@pytest.mark.parametrize("name", EXPECTED)
def test_sound_groups_are_found_and_wrong_ones_are_not(name: str) -> None:
    """Streams where norms fold, values, queries and keys; no neurons behind an activation, no heads, no tied stream."""
    module, example = built(ZOO[name])
    draw(module, 1)
    structure = fs.permutation_structure(module, example)
    found = fs.rotations(structure)
    assert {(block.name, block.kind) for block in found.blocks} == EXPECTED[name]
    groups = {group.name for group in structure.only("permutation").groups}
    assert {block.name for block in found.blocks} | set(found.refused) == groups
    before = {key: value.clone() for key, value in module.state_dict().items()}
    turned = found.apply(module, found.random(3))
    with torch.no_grad():
        old, new = (select(call(one, example)) for one in (module, turned))
    assert torch.allclose(old, new, atol=1e-4 * float(old.abs().max()))
    assert all(torch.equal(value, before[key]) for key, value in module.state_dict().items())


def test_a_tied_stream_is_refused_by_name() -> None:
    module, example = built(ZOO["llama-tied"])
    found = fs.rotations(fs.permutation_structure(module, example))
    assert "model.norm.weight cannot be folded into what reads it (tied?)" in found.refused["model.embed_tokens"]


@pytest.mark.parametrize("kind", [ORTHOGONAL, CENTRED])
def test_procrustes_is_the_nearest_map(kind: str) -> None:
    rng = np.random.default_rng(0)
    block = Group("h", 5, (), copies=1, kind=kind)
    gains = rng.normal(size=(1, 5, 5))
    found = nearest(block, gains)[0].numpy()
    np.testing.assert_allclose(found @ found.T, np.eye(5), atol=1e-12)
    if kind == CENTRED:
        np.testing.assert_allclose(found @ np.ones(5), np.ones(5), atol=1e-12)
    for seed in range(200):
        small = np.linalg.qr(np.eye(5) + 0.3 * np.random.default_rng(seed).normal(size=(5, 5)))[0]
        other = found @ small
        if kind == ORTHOGONAL:
            assert (other * gains[0]).sum() <= (found * gains[0]).sum() + 1e-12


@pytest.mark.parametrize("name", ["llama", "gpt2", "vit"])
def test_planted_maps_are_recovered(name: str) -> None:
    module, example = built(ZOO[name])
    draw(module, 1)
    a = module.double()
    structure = fs.permutation_structure(a, example)
    maps = fs.rotations(structure)
    b = maps.apply(structure.apply(a, structure.only("permutation").random(2)), maps.random(3))
    found = fs.match(a, b, structure, "weights", group="orthogonal")
    assert found.distances is not None and found.distances[1] < 1e-3 * found.distances[0]
    given = example if isinstance(example, dict) else example.double()
    with torch.no_grad():
        left, right = (select(call(one, given)) for one in (found.reference(a), found.apply(b)))
        own = select(call(b, given))
    assert torch.allclose(right, own, atol=1e-5 * float(own.abs().max()))
    assert torch.allclose(left, right, atol=1e-2 * float(own.abs().max()))


class Tiny(nn.Module):
    """Tokens with layer norms and a residual stream, small enough to train here."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.norm1, self.norm2 = nn.Linear(4, 8), nn.LayerNorm(8), nn.LayerNorm(8)
        self.up, self.down, self.head = nn.Linear(8, 12), nn.Linear(12, 8), nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        h = self.embed(x)
        h = h + self.down(torch.relu(self.up(self.norm1(h))))
        result: Tensor = self.head(self.norm2(h))
        return result


def tiny(seed: int, X: Tensor, y: Tensor) -> Tiny:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        net = Tiny()
    rule = torch.optim.Adam(net.parameters(), lr=1e-2)
    for _ in range(60):
        rule.zero_grad()
        nn.functional.cross_entropy(net(X), y).backward()
        rule.step()
    return net.eval()


def test_learned_maps_are_no_worse_than_where_they_start() -> None:
    X = torch.randn(120, 4, generator=torch.Generator().manual_seed(0))
    y = (X[:, 0] > 0).long() + (X[:, 1] * X[:, 2] > 0).long()
    a, b = tiny(0, X, y), tiny(1, X, y)
    start = fs.match(a, b, method="weights", group="orthogonal", data=X)
    found = fs.match(a, b, method="learned", group="orthogonal", data=(X, y), steps=24)
    assert found.losses is not None and found.losses[1] < found.losses[0]
    assert start.distances is not None and start.distances[1] < start.distances[0]

    def on_the_way(pair: fs.Matching) -> float:
        left, right = pair.reference(a), pair.apply(b)
        with torch.no_grad():
            middles = [fs.interpolate(left, right, t)(X).double() for t in (0.25, 0.5, 0.75)]
            return float(np.mean([float(nn.functional.cross_entropy(one, y)) for one in middles]))

    assert found.losses[1] == pytest.approx(on_the_way(found), rel=1e-4)
    assert on_the_way(found) <= on_the_way(start) + 1e-6
    with torch.no_grad():
        assert torch.allclose(found.apply(b)(X), b(X), atol=1e-4)
        assert torch.allclose(found.reference(a)(X), a(X), atol=1e-4)


def test_refusals() -> None:
    net = fs.mlp((3, 4, 2))
    with pytest.raises(InputError, match="group: expected one of"):
        fs.match(net, net, method="weights", group="unitary")
    with pytest.raises(InputError, match="group: expected one of"):
        fs.match(net, net, data=torch.zeros(2, 3), group="orthogonal")
    a = Tiny()
    with torch.no_grad():
        a.norm1.weight[2] = 0.0
    with pytest.raises(InputError, match=r"norm1\.weight: expected no zeros in the weight of a norm"):
        fs.match(a, Tiny(), method="weights", group="orthogonal")


@pytest.mark.parametrize(
    "bend", [nn.ReLU(), nn.LeakyReLU(0.1), nn.ReLU6(), nn.Hardtanh()], ids=lambda b: type(b).__name__
)
def test_a_poor_example_emits_no_wrong_map(bend: nn.Module) -> None:
    """At one point all neurons may be silent, or none: there every map would do."""
    for seed in range(12):
        torch.manual_seed(seed)
        net = nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 2 + seed % 3), bend, nn.Linear(2 + seed % 3, 2))
        structure = fs.permutation_structure(net, torch.zeros(1, 2))
        assert [block.name for block in fs.rotations(structure).blocks] == ["0"]
        assert [block.name for block in fs.linear_groups(structure).blocks] == ["0"]


def test_examples_that_cannot_be_moved_are_taken_as_they_are() -> None:
    class Fixed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 2))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.net(x.reshape(3, 2))  # three points and no other number

    structure = fs.permutation_structure(Fixed(), torch.randn(3, 2))
    assert [block.name for block in fs.rotations(structure).blocks] == ["net.0"]


def test_norms_of_groups_of_channels_are_not_folded() -> None:
    """A factor that several channels of a convolution in groups share is not the whole weight of their norm."""
    torch.manual_seed(0)
    parts = (nn.Conv2d(3, 4, 3), nn.Conv2d(4, 8, 1, groups=2), nn.BatchNorm2d(8), nn.Conv2d(8, 8, 1, groups=8))
    net = nn.Sequential(*parts, nn.Conv2d(8, 5, 1), nn.Conv2d(5, 2, 1)).double().eval()
    x = torch.randn(2, 3, 4, 4, dtype=torch.float64)
    structure = fs.permutation_structure(net, x)
    for found in (fs.rotations(structure), fs.linear_groups(structure)):
        assert any(block.name == "4" for block in found.blocks)
        torch.testing.assert_close(found.apply(net, found.random(1))(x), net(x))


def test_heads_are_not_mixed_where_one_token_sees_itself_alone() -> None:
    """Attention weights are all one then, and any map of the values of all heads would do."""
    torch.manual_seed(0)
    net = nn.TransformerEncoderLayer(8, 2, 12, batch_first=True).double().eval()
    draw(net, 0)
    structure = fs.permutation_structure(net, torch.randn(1, 1, 8, dtype=torch.float64))
    x = torch.randn(2, 5, 8, dtype=torch.float64)
    for find in (fs.rotations, fs.linear_groups):
        found = find(structure)
        assert any("holds other groups" in reason for reason in found.refused.values())
        assert torch.allclose(found.apply(net, found.random(0))(x), net(x), atol=1e-8)
