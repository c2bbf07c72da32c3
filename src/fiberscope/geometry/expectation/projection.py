"""Gradients of the neurons of one network along a curve, and their projections onto its tangents."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fiberscope.errors import InputError
from fiberscope.geometry.affine_forms import neuron_gradients
from fiberscope.geometry.curves.curve import Path
from fiberscope.network.border import NetworkLike, as_network
from fiberscope.numerics.floats import FloatArray, IntArray
from fiberscope.results import Pictured, hidden


@dataclass(frozen=True, slots=True, eq=False)
class ProjectedGradients(Pictured):
    """Gradients of some neurons at places on a curve, and what is left of them in the tangent direction.

    ``gradients`` is ``(neurons, places, n)``, ``tangents`` ``(places, n)`` of length 1 (0 where the curve stands
    still), ``speed`` ``(places,)``.
    """

    curve: Path = field(metadata=hidden())
    parameters: FloatArray = field(repr=False)
    points: FloatArray = field(repr=False)
    tangents: FloatArray = field(repr=False)
    speed: FloatArray = field(repr=False, metadata=hidden())
    neurons: IntArray = field(repr=False)
    gradients: FloatArray = field(repr=False)

    told = ("projected", "mean_projected", "mean_length")
    picture = "projected_gradients"

    @property
    def projected(self) -> FloatArray:
        """Components along the tangent, with sign, ``(neurons, places)``."""
        return np.asarray(np.einsum("kpn,pn->kp", self.gradients, self.tangents))

    @property
    def mean_projected(self) -> float:
        """Mean length of the projections, over the neurons and the length of the curve."""
        return float(np.average(np.abs(self.projected).mean(axis=0), weights=self.speed))

    @property
    def mean_length(self) -> float:
        """Mean length of the gradients themselves."""
        return float(np.average(np.linalg.norm(self.gradients, axis=2).mean(axis=0), weights=self.speed))

    def __repr__(self) -> str:
        return (
            f"ProjectedGradients({len(self.neurons)} neurons at {len(self.parameters)} places: "
            f"mean {self.mean_projected:.4g} of {self.mean_length:.4g})"
        )


def projected_gradients(net: NetworkLike, curve: Path, *, places: int = 200, neurons: Any = None) -> ProjectedGradients:
    """Gradients of neurons at evenly spaced parameters of a curve, all neurons by default.

    >>> from fiberscope.geometry.curves.curve import Segment
    >>> from fiberscope.network.network import Network
    >>> net = Network([[[3.0, 4.0]], [[1.0]]], [[0.0], [0.0]])
    >>> projected_gradients(net, Segment([0.0, 1.0], [2.0, 1.0]), places=5)
    ProjectedGradients(1 neurons at 5 places: mean 3 of 5)
    """
    net = as_network(net)
    if not isinstance(curve, Path):
        raise InputError(f"curve: expected a curve, got {type(curve).__name__}")
    if curve.ambient != net.in_size:
        raise InputError(f"curve: expected one in R^{net.in_size} for this network, got R^{curve.ambient}")
    if places < 1:
        raise InputError(f"places: expected at least 1, got {places}")
    entries = np.arange(net.num_signs) if neurons is None else np.atleast_1d(np.asarray(neurons, dtype=np.int64))
    if not len(entries) or not ((entries >= 0) & (entries < net.num_signs)).all():
        raise InputError(f"neurons: expected entries 0 to {net.num_signs - 1} of the sign vector, got {neurons}")
    low, high = curve.interval
    t = low + (high - low) * (np.arange(places) + 0.5) / places
    velocity, points = curve.derivative(t), curve(t)
    speed = np.linalg.norm(velocity, axis=1)
    tangents = velocity / np.where(speed > 0, speed, 1.0)[:, None]
    signs = net.signs(points).signs
    gradients = np.stack([neuron_gradients(net, signs, np.full(places, entry)) for entry in entries])
    return ProjectedGradients(curve, t, points, tangents, speed, entries, gradients)
