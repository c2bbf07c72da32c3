"""The answer to the question whether two networks are one function, with its evidence."""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from fiberscope.geometry.domains import Domain
from fiberscope.network.action.chain import Symmetry
from fiberscope.network.network import Network
from fiberscope.numerics.floats import FloatArray, IntArray
from fiberscope.symmetry.encoding import write_certificate
from fiberscope.symmetry.rational import nearest


@dataclass(frozen=True, slots=True, eq=False)
class Counterexample:
    """An input at which two networks differ: ``x`` exactly as given, ``a`` and ``b`` rounded from the exact outputs.

    On a plane ``x`` has the two coordinates of the slice. ``difference`` is the largest difference of an output,
    rounded; ``allowed`` is what the kind of equality allows there.
    """

    x: FloatArray
    a: FloatArray
    b: FloatArray
    difference: float
    allowed: float

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {
            "x": self.x.tolist(),
            "a": [_finite(v) for v in self.a.tolist()],
            "b": [_finite(v) for v in self.b.tolist()],
            "difference": _finite(self.difference),
            "allowed": _finite(self.allowed),
        }


def _finite(value: float) -> float | None:
    """JSON has no infinity; what is beyond the floats is None there."""
    return value if np.isfinite(value) else None


@dataclass(frozen=True, slots=True, eq=False)
class Transport:
    """How the first layer of one three-layer bottleneck is carried onto that of another.

    First the visible neurons ``flips`` of ``a`` are reflected and its hidden hyperplane ``hidden`` is moved by
    ``translation``, in the scale of ``a``. Then neuron ``i`` of ``b`` is neuron ``permutation[i]`` of ``a``, multiplied
    by ``scales[i]``. The layers behind are equal on the orthant: exactly if ``exact``, else up to rounding. ``line``
    says that both networks have one first-layer neuron, so that they are sums over parallel hyperplanes, or, without a
    permutation, that both are constant; then these are equal.
    """

    permutation: tuple[int, ...]
    scales: FloatArray
    flips: tuple[int, ...] = ()
    hidden: int | None = None
    translation: Fraction = Fraction(0)
    exact: bool = True
    line: bool = False

    @property
    def text(self) -> str:
        """In words."""
        if self.line and not self.permutation:
            return "both are the same constant"
        if self.line:
            return "with one neuron in the first layer both are the same sum over parallel hyperplanes"
        if self.hidden is None:
            return "the first layers match, and the layers behind are equal on the orthant"
        word = "neurons" if len(self.flips) > 1 else "neuron"
        turned = f"{word} {', '.join(map(str, self.flips))} of layer 1 reflected, " if self.flips else ""
        return f"{turned}the hidden hyperplane {self.hidden} moved by {float(self.translation):.6g}; the rest is equal"

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON; the translation as an exact fraction."""
        return {
            "permutation": list(self.permutation),
            "scales": self.scales.tolist(),
            "flips": list(self.flips),
            "hidden": self.hidden,
            "translation": str(self.translation),
            "exact": self.exact,
            "line": self.line,
        }


@dataclass(frozen=True, slots=True, eq=False)
class Witness:
    """Why two networks are equal.

    ``symmetry`` carries ``a`` onto ``b`` (both simplified first, if ``simplified``). ``transport`` does so for the
    first layers of two bottlenecks, by more than permutations and scales. Otherwise ``signs`` are the signs of neurons
    of ``a`` and ``b`` that were proven on the domain, with which the normal forms of the two agree over
    ``hyperplanes`` hyperplanes; ``ulps`` is 0 if they agree exactly. ``layers`` says which activation or pool of ``b``
    stands for each of ``a``, counted from 0, with the composed affine maps between them compared entry by entry.
    """

    symmetry: Symmetry | None = None
    simplified: bool = False
    signs: tuple[IntArray, IntArray] | None = None
    hyperplanes: int | None = None
    ulps: int = 0
    regions: int | None = None
    transport: Transport | None = None
    layers: tuple[int, ...] | None = None

    @property
    def permutations(self) -> tuple[IntArray, ...]:
        """One for every hidden layer that is matched: all of them by a symmetry, the first one by a transport."""
        if self.transport is not None:
            return (np.array(self.transport.permutation, dtype=np.int64),)
        return () if self.symmetry is None else self.symmetry.permutations

    @property
    def scales(self) -> tuple[FloatArray, ...]:
        """As the permutations."""
        if self.transport is not None:
            return (self.transport.scales,)
        return () if self.symmetry is None else self.symmetry.scales

    @property
    def flips(self) -> tuple[int, ...]:
        """First-layer neurons of ``a`` that are reflected."""
        return () if self.transport is None else self.transport.flips

    @property
    def translation(self) -> float:
        """How far the hidden hyperplane of ``a`` is moved."""
        return 0.0 if self.transport is None else float(self.transport.translation)

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON; only what is there."""
        found: dict[str, Any] = {} if self.symmetry is None else self.symmetry.to_dict()
        if self.simplified:
            found["simplified"] = True
        if self.signs is not None:
            found["signs"] = [s.tolist() for s in self.signs]
            found["ulps"] = self.ulps
            found["hyperplanes"] = self.hyperplanes
        if self.regions is not None:
            found["regions"] = self.regions
        if self.transport is not None:
            found["transport"] = self.transport.to_dict()
        if self.layers is not None:
            found["layers"] = list(self.layers)
        return found


@dataclass(frozen=True, slots=True, eq=False)
class Verdict:
    """Whether two networks are the same function on a domain: True and False are proven, None is undecided.

    ``tolerance`` names the kind of equality: None *up to rounding*, 0 *the same real function*, a positive number
    *within it everywhere on the domain*. ``bound`` is the largest difference that is proven (0 for the same real
    function), ``residual`` how far the evidence is from exact agreement, in ulps. ``reason`` says in words what was
    found.
    """

    equal: bool | None
    method: str
    domain: Domain
    tolerance: float | None = None
    witness: Witness | None = None
    counterexample: Counterexample | None = None
    bound: float | None = None
    residual: float | None = None
    seconds: float = 0.0
    reason: str = ""
    networks: tuple[Network, Network] | None = field(default=None, repr=False)
    precision: str | None = None

    @property
    def exact(self) -> bool:
        """Whether the two are proven to be the same real function."""
        return self.equal is True and self.bound == 0

    @property
    def kind(self) -> str:
        """The kind of equality in words."""
        return kind_of(self.tolerance, self.precision)

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON, without the networks."""
        return {
            "equal": self.equal,
            "method": self.method,
            "tolerance": self.tolerance,
            "precision": self.precision,
            "domain": repr(self.domain),
            "witness": None if self.witness is None else self.witness.to_dict(),
            "counterexample": None if self.counterexample is None else self.counterexample.to_dict(),
            "bound": self.bound,
            "residual": self.residual,
            "seconds": self.seconds,
            "reason": self.reason,
        }

    def save(self, path: Path | str, models: tuple[Path | str, Path | str] | None = None) -> None:
        """Write a certificate that :func:`fiberscope.verify` can replay.

        The networks go into the file, or, with ``models``, their paths; in either case with a hash of their content.
        """
        write_certificate(path, self, models)

    def __repr__(self) -> str:
        answer = {True: "equal", False: "different", None: "undecided"}[self.equal]
        parts = [f"{answer} {self.kind} on {self.domain}", f"by {self.method}"]
        if self.counterexample is not None:
            parts.append(f"difference {self.counterexample.difference:.3g} at x = {_short(self.counterexample.x)}")
        if self.residual:
            parts.append(f"residual {self.residual:.3g} ulps")
        return f"Verdict({', '.join(parts)})"


def kind_of(tolerance: float | None, precision: str | None) -> str:
    """A kind of equality in words.

    >>> kind_of(None, "float32"), kind_of(0.0, None), kind_of(0.5, None)
    ('up to float32 rounding', 'as real functions', 'within 0.5')
    """
    if tolerance is None:
        return f"up to {precision or 'float64'} rounding"
    return "as real functions" if tolerance == 0 else f"within {tolerance:g}"


def _short(x: FloatArray) -> str:
    text = np.array2string(x, precision=4, threshold=6, edgeitems=2, separator=", ")
    return " ".join(text.split())


def rounded(values: list[Fraction]) -> FloatArray:
    """The nearest floats; infinite beyond their range."""
    return nearest(np.array(values, dtype=object))
