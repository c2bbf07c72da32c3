"""A simplified network and the proof that it is equal: as a verdict, and in the float type it will be stored in."""

from __future__ import annotations

from dataclasses import replace

from fiberscope.equality.ladder import equivalent
from fiberscope.equality.rungs.normal_form import NormalForms, method_of, proven_by
from fiberscope.equality.verdict import Verdict
from fiberscope.errors import InputError
from fiberscope.fibers.normal_form.compare import Agreement
from fiberscope.fibers.simplify.simplify import Simplified
from fiberscope.network.formats.float_types import holds, rounded
from fiberscope.numerics.ulps import DOUBLE


def verdict_of(result: Simplified) -> Verdict:
    """The proof of a simplification as an answer to the question whether the two are equal."""
    proof = result.proof
    if isinstance(proof, Verdict):
        return proof
    assert isinstance(proof, Agreement)
    found = proven_by(proof)
    return Verdict(
        proof.equal,
        method_of(proof),
        result.domain,
        0.0 if proof.exactly else None,
        NormalForms.of(proof) if found.ok else None,
        found.bound,
        found.residual,
        reason=found.text,
        networks=(result.original, result.network),
        precision=None if proof.exactly else DOUBLE.precision,
    )


def stored(result: Simplified, dtype: str, time_limit: float = 10.0) -> Simplified:
    """The simplified network rounded to a float type, where that is proven to be the same function up to rounding.

    Sums and products of float32 numbers are not float32 numbers as a rule. A proof about them says nothing of a file
    that holds them rounded, so the rounded network is compared with the original one again. Where equality up to the
    rounding of the original's own precision is not proven, and where the numbers of the original are float64, the
    result stays as it was and needs the wider type.

    >>> import numpy as np
    >>> from fiberscope.network.network import Network
    >>> from fiberscope.fibers.simplify.simplify import simplify
    >>> w = np.array([[0.1], [0.1]], dtype=np.float32)
    >>> v = np.array([[0.1, 7.7]], dtype=np.float32)  # the sum is no float32
    >>> result = simplify(Network([w, v], [np.zeros(2, np.float32), np.zeros(1, np.float32)]))
    >>> small = stored(result, "float32")
    >>> result.exact, small.exact, small.verdict.equal, small.verdict.precision
    (True, False, True, 'float32')
    """
    original = result.original
    if holds(result.network, dtype) or original.source.precision == "float64":
        return result
    try:
        network = rounded(result.network, dtype)
    except InputError:  # beyond the range of the type
        return result
    verdict = equivalent(original, network, result.domain, time_limit=time_limit)
    return replace(result, network=network, proof=verdict) if verdict.equal is True else result
