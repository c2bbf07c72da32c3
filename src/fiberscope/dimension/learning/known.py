"""Learning coefficients that theory gives."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from fractions import Fraction

from fiberscope.errors import InputError


def deep_linear_coefficient(widths: Sequence[int], rank: int) -> Fraction:
    r"""The learning coefficient of a deep linear network without biases whose product of matrices has a given rank.

    It belongs to the most singular parameters: those at which all matrices have the rank of the product. With
    ``M_l = n_l - r``, some ``k + 1`` of the layers are chosen, those of the smallest ``M``, such that
    ``k M_l <= sum M`` for the chosen ones and ``k M_l >= sum M`` for the others; with ``sum M = (m - 1) k + a``, ``0 <
    a <= k``,

    .. math:: \lambda = \frac{r (n_0 + n_L - r)}2 + \frac{a (k - a)}{4 k} - \frac{(\sum M)^2 (k - 1)}{4 k}
              + \frac12 \sum_{i < j} M_i M_j .

    Parameters
    ----------
    widths
        ``(n_0, ..., n_L)``.
    rank
        Of the product, at most the smallest width.

    References
    ----------
    M. Aoyagi: Consideration on the learning efficiency of multiple-layered neural networks with linear units. Neural
    Networks 172, 2024. For two layers: M. Aoyagi, S. Watanabe, Neural Networks 18, 2005.

    Examples
    --------
    A product of two numbers at zero has ``a^2 b^2``, with coefficient 1/2, and matrices of full rank are regular:

    >>> deep_linear_coefficient((1, 1, 1), 0), deep_linear_coefficient((3, 5, 2), 2)
    (Fraction(1, 2), Fraction(3, 1))
    """
    sizes = [int(n) for n in widths]
    if len(sizes) < 2 or min(sizes) < 1:
        raise InputError(f"widths: expected at least two positive numbers, got {tuple(widths)}")
    if not 0 <= rank <= min(sizes):
        raise InputError(f"rank: expected 0 to {min(sizes)}, the smallest width, got {rank}")
    spare = sorted(n - rank for n in sizes)
    k = next(k for k in range(1, len(spare)) if _chosen(spare, k))
    chosen = spare[: k + 1]
    total = sum(chosen)
    a = total - (-(-total // k) - 1) * k if total else k
    pairs = sum(x * y for x, y in itertools.combinations(chosen, 2))
    regular = Fraction(rank * (sizes[0] + sizes[-1] - rank), 2)
    return regular + Fraction(a * (k - a), 4 * k) - Fraction(total**2 * (k - 1), 4 * k) + Fraction(pairs, 2)


def _chosen(spare: list[int], k: int) -> bool:
    """Whether the first ``k + 1`` of the sorted numbers are the set of the formula."""
    total = sum(spare[: k + 1])
    inside = k * spare[k] <= total
    return inside and all(k * x >= total for x in spare[k + 1 :])
