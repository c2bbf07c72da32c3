"""Are two networks the same around every input of a data set? A verdict for every ball."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fiberscope.equality.ladder import equivalent, is_quantised_file
from fiberscope.equality.question import DEFAULT_SECONDS
from fiberscope.equality.verdict import Verdict
from fiberscope.errors import InputError
from fiberscope.geometry.domains import Box
from fiberscope.network.border import NetworkLike, as_network
from fiberscope.network.network import Network
from fiberscope.numerics.arrays import real_array
from fiberscope.numerics.floats import FloatArray
from fiberscope.results import Tabular, hidden
from fiberscope.run import Progress, Run


@dataclass(frozen=True, slots=True, eq=False)
class VerdictsAround(Tabular):
    """One verdict for every ball: ``equal`` is True if all of them say so, False if one says no, else None."""

    verdicts: tuple[Verdict, ...] = field(metadata=hidden())
    radius: float

    told = ("equal", "proven", "refuted", "undecided")
    frame = "per_ball"

    @property
    def equal(self) -> bool | None:
        found = {verdict.equal for verdict in self.verdicts}
        return False if False in found else None if None in found else True

    @property
    def proven(self) -> list[int]:
        """Numbers of the balls on which the two are the same."""
        return self._which(True)

    @property
    def refuted(self) -> list[int]:
        """Numbers of the balls with a counterexample."""
        return self._which(False)

    @property
    def undecided(self) -> list[int]:
        """The others."""
        return self._which(None)

    def _which(self, answer: bool | None) -> list[int]:
        return [k for k, verdict in enumerate(self.verdicts) if verdict.equal is answer]

    def per_ball(self) -> list[dict[str, Any]]:
        """A row for every ball."""
        return [
            {"ball": k, "equal": v.equal, "method": v.method, "seconds": v.seconds} for k, v in enumerate(self.verdicts)
        ]

    def __repr__(self) -> str:
        counts = (f"{len(getattr(self, name))} {name}" for name in ("proven", "refuted", "undecided"))
        return f"VerdictsAround({', '.join(counts)} of {len(self.verdicts)} balls of radius {self.radius:g})"


def equivalent_around(
    a: NetworkLike,
    b: NetworkLike,
    data: Any,
    radius: float,
    tolerance: float | Sequence[float] | None = None,
    time_limit: float | None = None,
    *,
    clip: tuple[float, float] | None = None,
    criterion: str = "value",
    margin: float | None = None,
    norm: str = "max",
    progress: Progress | None = None,
) -> VerdictsAround:
    """:func:`equivalent` on the ball of the maximum norm around every row of ``data``.

    Parameters
    ----------
    data
        Inputs ``(count, in_size)``; more axes are flattened.
    radius
        Of the balls ``|x - x_k| <= radius`` in every coordinate; the ends are rounded outward.
    time_limit
        Seconds for every single ball.
    clip
        Lower and upper end of what an input may be, as ``(0, 1)`` for pixels.
    tolerance, criterion, margin, norm
        As for :func:`equivalent`.

    Examples
    --------
    >>> from fiberscope.network.network import Network
    >>> a = Network([[[1.0], [0.0]]], [[0.0, 0.0]])  # class 0 for x > 0
    >>> b = Network([[[1.0], [0.0]]], [[-0.25, 0.0]])  # class 0 for x > 1/4
    >>> equivalent_around(a, b, [[1.0], [0.2]], 0.1, criterion="argmax")
    VerdictsAround(1 proven, 1 refuted, 0 undecided of 2 balls of radius 0.1)
    """
    left, right = _read(a, "a"), _read(b, "b")
    size = next((net.in_size for net in (left, right) if isinstance(net, Network)), None)
    reach = float(real_array(radius, "radius", ndim=0))
    if not 0 < reach < math.inf:
        raise InputError(f"radius: expected a positive number, got {radius}")
    if clip is not None and not clip[0] <= clip[1]:
        raise InputError(f"clip: expected a lower and an upper end, got {clip[0]:g} and {clip[1]:g}")
    points = real_array(data, "data")
    width = 0 if points.ndim < 2 or not len(points) else points[0].size
    if not width or width != (width if size is None else size):
        wanted = "so many numbers as the models have inputs" if size is None else f"{size} numbers"
        raise InputError(f"data: expected rows of {wanted}, got shape {points.shape}")
    run = Run.begin(progress)
    seconds = DEFAULT_SECONDS if time_limit is None else time_limit
    asked: dict[str, Any] = {"criterion": criterion, "margin": margin, "norm": norm}
    verdicts: list[Verdict] = []
    for box in balls(points.reshape(len(points), -1), reach, clip):
        run.report(len(verdicts), len(points), f"balls, {sum(v.equal is None for v in verdicts)} undecided")
        verdicts.append(equivalent(left, right, box, tolerance, seconds, len(verdicts), **asked))
    return VerdictsAround(tuple(verdicts), reach)


def _read(source: NetworkLike, name: str) -> Any:
    """A network, once for all balls; a quantised file stays one, whose program depends on the ball."""
    quantised = str(source).endswith(".onnx") and is_quantised_file(source)
    return source if quantised else as_network(source, name)


def balls(points: FloatArray, radius: float, clip: tuple[float, float] | None = None) -> Iterator[Box]:
    """The balls as boxes that hold them."""
    for k, x in enumerate(points):
        low, high = np.nextafter(x - radius, -np.inf), np.nextafter(x + radius, np.inf)
        if clip is not None:
            low, high = np.maximum(low, clip[0]), np.minimum(high, clip[1])
            if not (low <= high).all():
                raise InputError(f"data: expected inputs near [{clip[0]:g}, {clip[1]:g}], got another one in row {k}")
        yield Box(low, high)
