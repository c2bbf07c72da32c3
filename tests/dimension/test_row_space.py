"""Tall and wide Jacobians that are never held: streamed, sketched and formed ranks are one number."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fiberscope.dimension import blocks, decisive, row_space
from fiberscope.dimension.blocks import sketched_rank
from fiberscope.dimension.choice import restricted
from fiberscope.dimension.decisive import decisive_set
from fiberscope.dimension.exact_rank import exact_jacobian_rank, residue_rows, sample, way_of
from fiberscope.dimension.functional import functional_dimension
from fiberscope.dimension.row_space import RowSpace, Sketch, streamed_rank
from fiberscope.errors import InputError, TooLargeError
from fiberscope.geometry.domains import Box, Plane
from fiberscope.network.network import Network
from fiberscope.numerics.elimination import rank_mod
from fiberscope.numerics.modular import MIDDLE, SMALL, matmul_mod, random_primes
from fiberscope.testing import CASES, case

KINDS = sorted(CASES)


def spread(net, count=14, seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(count, net.in_size)) * 2.0 ** rng.uniform(-2, 3, (count, 1))


@settings(max_examples=40)
@given(st.integers(1, 30), st.integers(1, 40), st.integers(0, 12), st.integers(0, 2**32))
def test_row_spaces_know_their_rank_and_who_leaves(m, n, r, seed):
    rng = np.random.default_rng(seed)
    (prime,) = random_primes(1, rng, MIDDLE)
    a, b = (rng.integers(0, prime, shape, dtype=np.uint64) for shape in ((m, r), (r, n)))
    rows = matmul_mod(a, b, prime)
    rows[rng.random(m) < 0.2] = 0
    space = RowSpace(n, prime, rng)
    cut = int(rng.integers(0, m + 1))
    for part in (rows[:cut], rows[cut:]):
        space.extend(part)
    assert space.rank == rank_mod(rows, prime)
    assert not space.leaves(rows).any()
    other = rng.integers(0, prime, (1, n), dtype=np.uint64)
    assert space.leaves(other).any() == (rank_mod(np.concatenate([rows, other]), prime) > space.rank)


@pytest.mark.parametrize("name", KINDS)
def test_streamed_sketched_and_formed_ranks_agree(name, monkeypatch):
    """On every kind of network, in chunks of a few points, modulo two primes in a row."""
    net = case(name)
    found = sample(net, spread(net))
    if not len(found.X) or not net.num_parameters:
        pytest.skip("nothing to rank")
    monkeypatch.setattr(row_space, "CHUNK", 3 * net.num_parameters)
    monkeypatch.setattr(blocks, "_HELD", 40)
    known = Sketch(net, (found.X, found.signs), 5)
    for prime in random_primes(2, 3, MIDDLE):
        expected = rank_mod(residue_rows(net, found.X, found.signs, prime), prime)
        rank, known = streamed_rank(known, prime, net.num_parameters)
        assert rank == expected
        full = min(len(found.X) * net.out_size, net.num_parameters)
        assert sketched_rank(net, found.X, found.signs, prime, full, 7) == expected
        assert sketched_rank(net, found.X, found.signs, prime, expected, 7) == expected


def test_a_sketch_that_misses_rows_is_completed(monkeypatch):
    """Too few rows in the sketch: the others are found by the kernel."""
    net = Network.random((2, 5, 4, 2), 3)
    found = sample(net, spread(net, 300))
    (prime,) = random_primes(1, 3, MIDDLE)
    expected = rank_mod(residue_rows(net, found.X, found.signs, prime), prime)
    monkeypatch.setattr(Sketch, "table", lambda self, prime, run: np.zeros((3, self.size), np.uint64))
    assert streamed_rank(Sketch(net, (found.X, found.signs), 0), prime, net.num_parameters)[0] == expected


def test_a_basis_that_fails_modulo_the_next_prime_is_not_believed():
    net = Network.random((2, 5, 4, 1), 3)
    found = sample(net, spread(net, 300))
    (prime,) = random_primes(1, 3, MIDDLE)
    rank, known = streamed_rank(Sketch(net, (found.X, found.signs), 0), prime, net.num_parameters)
    assert len(known.rows) == len(known.columns) == rank
    for rows, columns in ((known.rows[:-2], known.columns[:-2]), (known.rows, np.arange(rank)[::-1] * 0)):
        wrong = Sketch(net, known.points, 0, rows, columns)
        assert streamed_rank(wrong, prime, net.num_parameters)[0] == rank


def test_the_ways_and_their_limits():
    assert way_of(100, 300) == "formed"
    assert way_of(100, 3000) == "sketched"
    assert way_of(10**5, 300) == "streamed"
    assert way_of(1000, 3000, memory=6e7) == "sketched"
    with pytest.raises(TooLargeError, match=r"50000 x 60000 Jacobian needs 93.1 GiB here, the limit is 2.0 GiB"):
        way_of(50_000, 60_000, 2**31)


def test_large_jacobians_take_small_primes_first():
    net = Network.random((2, 12, 12, 1), 0)
    found = sample(net, spread(net, 2000))
    upper = functional_dimension(net, found.X, ranks="exact").upper
    result = exact_jacobian_rank(net, found, upper)
    sizes = [prime.bit_length() for prime in result.primes]
    assert sizes[0] == SMALL and set(sizes[1:]) <= {MIDDLE}
    assert result.failure_probability <= 1e-9
    again = exact_jacobian_rank(net, found, result.rank)
    assert again.failure_probability == 0 and len(again.primes) == 1


@pytest.mark.parametrize("names", [["0.weight"], ["2.bias", "4.weight"], ["4.*"], ["0.*", "2.*", "4.*"]])
def test_some_of_the_parameters(names, rational_jacobian, rational_rank):
    net = Network.random((2, 4, 3, 2), 1)
    X = spread(net, 12)
    result = functional_dimension(net, X, parameters=names)
    kept = [n for n in net.parameters if any(n == p or (p.endswith("*") and n.startswith(p[:-1])) for p in names)]
    columns = np.concatenate([np.full(v.size, n in kept) for n, v in net.parameters.items()])
    rows = [[v for v, keep in zip(row, columns, strict=True) if keep] for row in rational_jacobian(net, X)]
    assert result.exact == result.numerical == rational_rank(rows) <= result.upper
    assert result.num_parameters == columns.sum() == restricted(net, kept).num_parameters


def test_frozen_parameters_and_bad_names():
    module = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.ReLU(), torch.nn.Linear(3, 1))
    module[0].requires_grad_(False)
    X = np.random.default_rng(0).normal(size=(9, 2))
    some = functional_dimension(module, X, parameters="requires_grad")
    assert some.num_parameters == 4
    smooth = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.Tanh(), torch.nn.Linear(3, 1))
    assert functional_dimension(smooth, X, parameters="2.*", ranks="numerical").numerical == 4
    module[2].requires_grad_(False)
    with pytest.raises(InputError, match="all parameters are frozen"):
        functional_dimension(module, X, parameters="requires_grad")
    net = Network.random((2, 3, 1), 0)
    for bad, text in (("requires_grad", "torch modules only"), ("1.weight", "got '1.weight'"), ([], "at least one")):
        with pytest.raises(InputError, match=text):
            functional_dimension(net, X, parameters=bad)


def test_only_the_ranks_that_are_asked():
    net = Network.random((2, 3, 1), 0)
    X = np.random.default_rng(0).normal(size=(9, 2))
    whole = functional_dimension(net, X)
    one = functional_dimension(net, X, ranks="exact")
    assert (one.exact, one.numerical, one.paper, one.ranks) == (whole.exact, None, None, ("exact",))
    assert "numerical" not in repr(one)
    floats = functional_dimension(net, X, ranks=["paper", "numerical"])
    assert (floats.exact, floats.lower, floats.numerical) == (None, None, whole.numerical)
    for bad in (["rank"], [], ["exact", 3]):
        with pytest.raises(InputError, match="ranks"):
            functional_dimension(net, X, ranks=bad)
    with pytest.raises(InputError, match="exact=False"):
        functional_dimension(net, X, ranks="exact", exact=False)


def test_the_rule_of_the_literature_is_warned_of():
    module = torch.nn.Sequential(torch.nn.Embedding(2000, 50), torch.nn.Flatten(), torch.nn.Linear(150, 1))
    tokens = np.array([[1, 2, 3], [4, 5, 1999]])
    found = functional_dimension(module, tokens)
    assert found.exact is None and found.numerical == 2
    assert found.warnings and "cuts off at 0.012 of the largest" in found.warnings[0]
    assert not functional_dimension(module, tokens, ranks="numerical").warnings
    with pytest.raises(InputError, match="floating-point"):
        functional_dimension(torch.nn.Sequential(torch.nn.Linear(3, 1), torch.nn.Tanh()), tokens)


@pytest.mark.parametrize("seed", range(3))
def test_decisive_sets_of_a_domain(seed, rational_jacobian, rational_rank):
    """No batch of the domain has a larger rank than the set, and some batch of it has that rank."""
    net = Network.random((2, 5, 3, 1), seed)
    box = Box.cube(2, 0.0, 0.5)
    found = decisive_set(net, box)
    assert found.complete and "regions of" in found.text
    rank = rational_rank(rational_jacobian(net, found.X))
    inside = box.sample(4000, seed)
    assert functional_dimension(net, inside, ranks="exact").exact == rank
    assert rank <= functional_dimension(net, ranks="exact").exact
    with pytest.raises(InputError, match="all 2 dimensions"):
        decisive_set(net, Box([0.0, 1.0], [1.0, 1.0]))
    with pytest.raises(InputError):
        decisive_set(Network.random((3, 2, 1), 0), Plane.along(3, (0, 1)))


def test_neighbours_lie_behind_a_hyperplane():
    net = Network.random((6, 8, 5, 1), 2)
    X = spread(net, 200)
    signs = net.signs(X).signs
    beyond = decisive.neighbours(net, X, signs, np.random.default_rng(0))
    assert len(beyond) == 200
    assert (net.signs(beyond).signs != signs).any(axis=1).mean() > 0.9


def test_too_many_parameters_to_explore_are_sampled():
    net = Network.random((5, 30, 30, 1), 2)
    found = decisive_set(net, memory=10**6)
    assert not found.complete and "too many parameters" in found.text
    result = functional_dimension(net, memory=3 * 10**7, ranks="exact")
    assert 0 < result.lower <= result.upper and (result.exact is None or result.certified)
