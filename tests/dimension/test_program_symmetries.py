"""Directions that change the function of a program on no input: the Jacobian annihilates them, modulo a prime."""

from __future__ import annotations

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from fiberscope.dimension.affine_rows import directions_in_a_row, mixtures, normalisations, translations_in_a_row
from fiberscope.dimension.bounds import program_symmetry
from fiberscope.dimension.choice import slopes_as_maps
from fiberscope.dimension.exact_rank import residue_rows, sample
from fiberscope.dimension.rescalings import rescalings
from fiberscope.network.io import load
from fiberscope.numerics.algebra.residue import ModularAlgebra
from fiberscope.numerics.elimination import rank_mod
from fiberscope.numerics.modular import matmul_mod, random_primes

ACTIVATIONS = (nn.ReLU, nn.PReLU, nn.ReLU6, lambda: nn.LeakyReLU(0.25), lambda: nn.Hardtanh(-0.5, 0.5))
POOLS = (nn.MaxPool2d(2), nn.AvgPool2d(2), nn.Identity())


class Program(nn.Module):
    """One of six wirings: a skip, two kinds of blocks, a concatenation, a value read twice, layers called twice."""

    def __init__(self, rng):
        super().__init__()
        c = int(rng.integers(1, 4))
        first, second, third, fourth = (bool(b) for b in rng.integers(2, size=4))
        self.a = nn.Conv2d(1, c, 2, bias=first, padding=int(rng.integers(2)))
        self.b = nn.Conv2d(c, c, 3, padding=1, groups=int(rng.choice([1, c])), bias=second)
        self.n, self.m, self.h = nn.BatchNorm2d(c, affine=rng.random() < 0.8), nn.BatchNorm2d(c), nn.BatchNorm1d(3)
        self.bend, self.pool = ACTIVATIONS[int(rng.integers(5))](), POOLS[int(rng.integers(3))]
        self.l, self.t, self.o = nn.LazyLinear(3, bias=third), nn.Linear(3, 3, bias=fourth), nn.Linear(3, 2)
        self.kind = int(rng.integers(6))

    def forward(self, x):
        x = self.bend(self.n(self.a(x)))
        match self.kind:
            case 0:
                x = x + self.m(self.b(x))
            case 1:
                x = torch.relu(x + self.b(x))
            case 2:
                x = torch.cat([x, torch.relu(self.m(self.b(x)))], 1)
            case 3:
                y = self.b(x)
                x = torch.relu(self.m(y)) + torch.relu(y)
            case 4:
                x = self.b(torch.relu(self.b(x)))
        x = self.l(self.pool(x).flatten(1))
        match self.kind:
            case 1 | 2:
                x = self.t(x)
            case 3:
                x = self.h(x)
            case 4:
                x = self.t(torch.relu(self.t(x)))
            case 5:
                return self.o(self.t(x))
        return self.o(torch.relu(x))


def drawn(seed):
    rng = np.random.default_rng(seed)
    torch.manual_seed(seed % 2**31)
    module = Program(rng).double()
    X = rng.normal(size=(10, 1, 4, 4))
    module(torch.from_numpy(X))
    with torch.no_grad():
        for part in module.eval().modules():
            if isinstance(part, nn.BatchNorm2d | nn.BatchNorm1d):
                part.running_mean.uniform_(-1, 1)
                part.running_var.uniform_(0.5, 2)
        for value in module.parameters():
            if rng.random() < 0.2:
                value[torch.rand_like(value) < 0.4] = 0
    return slopes_as_maps(load(module, (1, 4, 4))), X.reshape(10, -1)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_the_jacobian_annihilates_them(seed):
    net, X = drawn(seed)
    prime = random_primes(1, 7)[0]
    ring, D = ModularAlgebra(prime), net.num_parameters
    scales = rescalings(net)
    factors = scales.directions(D, prime)
    others = np.concatenate([kind(net, ring) for kind in (normalisations, mixtures, translations_in_a_row)])
    assert rank_mod(factors, prime) == scales.rank
    assert len(others) <= directions_in_a_row(net)
    rows = np.concatenate([factors, others])
    assert rank_mod(rows, prime) == program_symmetry(net) >= scales.rank
    found = sample(net, X)
    if len(found.X):
        J = residue_rows(net, found.X, found.signs, prime)
        assert not matmul_mod(J, np.ascontiguousarray(rows.T), prime).any()
