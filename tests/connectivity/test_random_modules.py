"""Modules put together at random: no group that the rules emit may need the self-check to be found wrong."""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import count

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fiberscope.connectivity.structure import permutation_structure


class Random(nn.Module):
    """A program of a few steps drawn from a seed; parameters are made when it runs for the first time.

    Every step takes an earlier value ``h`` of ``n`` features, seen as ``t``, ``a`` blocks of ``n / a``.
    """

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.seed, self.own = seed, nn.ParameterDict()

    def parameter(self, *shape: int) -> Tensor:
        name = f"p{next(self.numbers)}"
        if name not in self.own:
            self.own[name] = nn.Parameter(torch.randn(shape, dtype=torch.float64))
        return self.own[name]

    def linear(self, h: Tensor, n: int) -> Tensor:
        return h @ self.parameter(h.shape[-1], n) + self.parameter(n)

    def forward(self, x: Tensor) -> Tensor:
        rng, self.numbers = random.Random(self.seed), count()
        pool = [self.linear(x, rng.choice([6, 8, 12]))]
        for _ in range(rng.randint(2, 7)):
            h = rng.choice(pool)
            n, like = h.shape[-1], [other for other in pool if other.shape == h.shape]
            a = rng.choice([k for k in (2, 3, 4) if n % k == 0])
            step = rng.choice(STEPS)
            pool.append(step(self, h, h.view(len(h), a, n // a), rng.choice(like)).reshape(len(h), -1))
        return self.linear(torch.cat(pool[-2:], -1), 3)


def attention(net: Random, h: Tensor, t: Tensor, other: Tensor) -> Tensor:
    q, k, v = (net.linear(h, h.shape[1]).view(t.shape)[:, None].transpose(1, 2) for _ in range(3))
    return F.scaled_dot_product_attention(q, k, v).transpose(1, 2)


def convolved(net: Random, h: Tensor, t: Tensor, other: Tensor) -> Tensor:
    return F.conv1d(h[:, :, None], net.parameter(h.shape[1], t.shape[2], 1), groups=t.shape[1])


Step = Callable[[Random, Tensor, Tensor, Tensor], Tensor]
STEPS: list[Step] = [
    lambda net, h, t, o: F.relu(net.linear(h, h.shape[1])),
    lambda net, h, t, o: torch.tanh(h) * net.parameter(h.shape[1]),
    lambda net, h, t, o: t.softmax(1),
    lambda net, h, t, o: t.softmax(2),
    lambda net, h, t, o: t + t.sum(1, keepdim=True),
    lambda net, h, t, o: t.transpose(1, 2),
    lambda net, h, t, o: t @ (t.transpose(1, 2) @ t),
    lambda net, h, t, o: t * net.parameter(t.shape[2]),
    lambda net, h, t, o: t * net.parameter(t.shape[1], 1),
    lambda net, h, t, o: torch.stack([part.exp() if i % 2 else part for i, part in enumerate(t.unbind(1))], 1),
    lambda net, h, t, o: torch.cat([net.linear(part, part.shape[1]) for part in h.chunk(t.shape[1], -1)], -1),
    lambda net, h, t, o: h + o,
    lambda net, h, t, o: h * torch.sigmoid(o),
    lambda net, h, t, o: F.layer_norm(t, t.shape[2:], net.parameter(t.shape[2])),
    lambda net, h, t, o: F.group_norm(h, t.shape[1], net.parameter(h.shape[1]), net.parameter(h.shape[1])),
    lambda net, h, t, o: t.roll(1, 1),
    lambda net, h, t, o: t.roll(1, 2),
    lambda net, h, t, o: torch.einsum("bij,ijk->bik", t, net.parameter(*t.shape[1:], t.shape[2])),
    lambda net, h, t, o: torch.einsum("bij,jk->bik", t, net.parameter(t.shape[2], t.shape[2])),
    lambda net, h, t, o: torch.einsum("bij,bkj,bkl->bil", t, t, t),
    lambda net, h, t, o: torch.cat([h[:, h.shape[1] // 2 :], h[:, : h.shape[1] // 2]], -1),
    attention,
    convolved,
]


@pytest.mark.parametrize("part", range(4))
def test_rules_alone_are_sound(part: int) -> None:
    found = 0
    for seed in range(25 * part, 25 * part + 25):
        torch.manual_seed(seed)
        module, x = Random(seed), torch.randn(3, 5, dtype=torch.float64)
        module(x)
        structure = permutation_structure(module, x, seed=seed)
        assert not [one for one in structure.pinned if "self-check" in one.reason], seed
        found += len(structure.groups)
    assert found > 50
