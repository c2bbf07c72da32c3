"""What may carry the first layer of one three-layer bottleneck onto that of another."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from fiberscope.numerics.floats import FloatArray
from fiberscope.results import Result


@dataclass(frozen=True, slots=True, eq=False)
class Transport(Result):
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
