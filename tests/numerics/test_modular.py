"""Modular arithmetic against Python integers and flint."""

from __future__ import annotations

from fractions import Fraction

import flint
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from fiberscope.errors import InputError
from fiberscope.numerics import modular as mod

PRIMES = (
    2**61 - 1,
    *mod.random_primes(2, seed=7),
    1152921504606847009,  # the smallest of 61 bits
    *mod.random_primes(1, seed=7, bits=mod.MIDDLE),
    2**46 - 21,  # the largest of 46 and of 23 bits
    2**23 - 15,
)


def integers(array: np.ndarray) -> np.ndarray:
    return array.astype(object)


@pytest.fixture(params=PRIMES)
def prime(request: pytest.FixtureRequest) -> int:
    return int(request.param)


def random_residues(shape: tuple[int, ...], prime: int, seed: int = 0) -> np.ndarray:
    """Residues with many extreme entries: near p every intermediate sum is as large as it can be."""
    rng = np.random.default_rng(seed)
    values = rng.integers(0, prime, shape, dtype=np.uint64)
    return np.where(rng.random(shape) < 0.5, np.uint64(prime) - rng.integers(1, 3, shape, dtype=np.uint64), values)


def test_primes_are_prime_uniform_range_and_seeded() -> None:
    primes = mod.random_primes(20, seed=5)
    assert len(set(primes)) == 20
    assert all(2**60 < p < 2**61 and flint.fmpz(p).is_prime() for p in primes)
    assert primes == mod.random_primes(20, seed=5) != mod.random_primes(20, seed=6)


@pytest.mark.parametrize("bad", [7, 2**61, 2**61 + 1, 2**60 + 1, 2**31 - 1])
def test_wrong_primes_are_refused(bad: int) -> None:
    with pytest.raises(InputError, match="expected a prime"):
        mod.field_of(bad)


@given(
    hnp.arrays(np.float64, st.integers(0, 8), elements=st.floats(allow_nan=False, allow_infinity=False)),
    st.sampled_from(PRIMES),
)
def test_residues_are_exact(x: np.ndarray, prime: int) -> None:
    for value, residue in zip(x, mod.residues(x, prime), strict=True):
        exact = Fraction(float(value))
        assert exact.numerator * pow(exact.denominator, -1, prime) % prime == int(residue)


def test_residues_of_extreme_floats(prime: int) -> None:
    info = np.finfo(np.float64)
    x = np.array([info.max, -info.max, info.tiny, info.smallest_subnormal, -0.0, 0.0, 1.0, -info.tiny])
    expected = [Fraction(float(v)) for v in x]
    got = mod.residues(x, prime)
    assert [int(v) for v in got] == [e.numerator * pow(e.denominator, -1, prime) % prime for e in expected]


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_residues_refuse_what_is_no_number(bad: float) -> None:
    with pytest.raises(InputError, match="finite"):
        mod.residues(np.array([1.0, bad]), PRIMES[0])


def test_float32_is_read_exactly(prime: int) -> None:
    x = np.array([0.1, -3.7], np.float32)
    assert np.array_equal(mod.residues(x, prime), mod.residues(x.astype(np.float64), prime))


@given(st.lists(st.integers(-(2**300), 2**300), max_size=6), st.integers(-400, 400), st.sampled_from(PRIMES))
def test_residues_of_big_integers(values: list[int], exponent: int, prime: int) -> None:
    got = mod.residues_of_integers(np.array(values, object), prime, exponent)
    assert [int(v) for v in got] == [v * pow(2, exponent, prime) % prime for v in values]


def test_small_integer_dtypes_and_refusal(prime: int) -> None:
    assert mod.residues_of_integers(np.array([-1, 2]), prime).tolist() == [prime - 1, 2]
    with pytest.raises(InputError, match="integers"):
        mod.residues_of_integers(np.array([1.5]), prime)


def test_entrywise_operations_broadcast(prime: int) -> None:
    a, b = random_residues((5, 1), prime, 1), random_residues((1, 7), prime, 2)
    for fast, slow in ((mod.multiply_mod, lambda x, y: x * y), (mod.add_mod, lambda x, y: x + y)):
        out = fast(a, b, prime)
        assert out.dtype == np.uint64
        assert np.array_equal(integers(out), slow(integers(a), integers(b)) % prime)
    factor = -(3**100)
    assert np.array_equal(integers(mod.scale_mod(a, factor, prime)), integers(a) * factor % prime)


@pytest.mark.parametrize("shape", [(1, 1, 1), (2, 64, 3), (3, 65, 2), (5, 200, 7), (4, 0, 3), (0, 3, 2), (3, 2, 0)])
def test_matmul(shape: tuple[int, int, int], prime: int) -> None:
    m, k, n = shape
    a, b = random_residues((m, k), prime, 3), random_residues((k, n), prime, 4)
    slow = np.array([[sum(int(a[i, q]) * int(b[q, j]) for q in range(k)) % prime for j in range(n)] for i in range(m)])
    assert np.array_equal(integers(mod.matmul_mod(a, b, prime)), slow.reshape(m, n).astype(object))


def test_matmul_when_all_entries_are_as_large_as_possible(prime: int) -> None:
    a = np.full((3, 200), prime - 1, np.uint64)
    assert (mod.matmul_mod(a, a.T, prime) == 200).all()


@pytest.mark.parametrize("shape", [(40, 1100, 30), (300, 5, 1100), (2, 40_000, 3)])
@pytest.mark.parametrize("extreme", [False, True])
def test_large_products_through_floats(shape: tuple[int, int, int], extreme: bool, prime: int) -> None:
    """Entries next to p/2 have the largest balanced parts: there an inner product of floats is as long as it may be."""
    m, k, n = shape
    a, b = random_residues((m, k), prime, 3), random_residues((k, n), prime, 4)
    if extreme:
        a, b = (np.full(x.shape, prime // 2, np.uint64) + np.uint64(odd) for x, odd in ((a, 0), (b, 1)))
    with np.errstate(all="raise"):
        got = mod.matmul_mod(a, b, prime)
    slow = flint.nmod_mat(m, k, a.reshape(-1).tolist(), prime) * flint.nmod_mat(k, n, b.reshape(-1).tolist(), prime)
    assert got.reshape(-1).tolist() == [int(x) for x in slow.entries()]


@pytest.mark.parametrize("bits", [mod.SMALL, mod.MIDDLE, mod.WIDE])
def test_primes_of_every_size_are_counted_from_below(bits: int) -> None:
    primes = mod.random_primes(8, seed=1, bits=bits)
    assert all(mod.field_of(p).bits == bits for p in primes)
    if bits == mod.SMALL:
        sieve = np.ones(2**bits, dtype=bool)
        for q in range(2, 2900):
            if sieve[q]:
                sieve[q * q :: q] = False
        true = int(sieve[2 ** (bits - 1) :].sum())
        assert 0.9 * true < mod.prime_count(bits) <= true


def test_outer(prime: int) -> None:
    a, b = random_residues((4, 3), prime, 5), random_residues((4, 6), prime, 6)
    slow = integers(a)[:, :, None] * integers(b)[:, None, :] % prime
    assert np.array_equal(integers(mod.outer_mod(a, b, prime)), slow)


def test_transposed_and_strided_input(prime: int) -> None:
    a = random_residues((6, 8), prime, 8)
    assert np.array_equal(mod.matmul_mod(a.T, a, prime), mod.matmul_mod(a.T.copy(), a, prime))
    assert np.array_equal(mod.multiply_mod(a[::2], a[::2], prime), mod.multiply_mod(a, a, prime)[::2])


def test_shapes_and_dtypes_are_checked() -> None:
    p, a = PRIMES[0], np.ones((2, 3), np.uint64)
    with pytest.raises(InputError, match="inner sizes"):
        mod.matmul_mod(a, a, p)
    with pytest.raises(InputError, match="uint64"):
        mod.matmul_mod(a.astype(np.int64), a, p)
    with pytest.raises(InputError, match="axes"):
        mod.matmul_mod(a[0], a, p)
    with pytest.raises(InputError, match="rows"):
        mod.outer_mod(a, a[:1], p)
