"""For tests of code that works on networks: random and degenerate networks, Hypothesis strategies, assertions.

The strategies need Hypothesis (``pip install "fiberscope[testing]"``); the networks and assertions do not.
``testing.strategies`` draws ordinary chains, ``testing.hostile`` programs and numbers that try to break exact answers.
"""

from fiberscope.testing.assertions import assert_same_function, fraction_signs, fraction_values
from fiberscope.testing.cases import CASES, case, convolutional, degenerate, residual
from fiberscope.testing.pairs import PAIRS, LabelledPair, pair
from fiberscope.testing.rational import fraction_map, fraction_regions

__all__ = [
    "CASES",
    "PAIRS",
    "LabelledPair",
    "assert_same_function",
    "case",
    "convolutional",
    "degenerate",
    "fraction_map",
    "fraction_regions",
    "fraction_signs",
    "fraction_values",
    "pair",
    "residual",
]
