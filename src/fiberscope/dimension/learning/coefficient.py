"""The local learning coefficient, estimated by draws around a parameter.

Let ``L`` be a loss with a minimum at ``w*``. The volume of the parameters near ``w*`` whose loss is at most ``L(w*) +
e`` is about ``e^lambda`` for small ``e``; ``lambda`` is half the number of parameters where the second derivatives are
regular, and less where they are not. It is estimated by the mean excess of the loss over draws from ``exp(-n b L(w) -
(g/2) |w - w*|^2)``, times ``n b``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fiberscope import modules
from fiberscope.dimension.jacobian import check_memory, with_own_parameters
from fiberscope.dimension.learning.losses import Model, loss_and_slope, model_of
from fiberscope.errors import InputError, TooLargeError
from fiberscope.network.border import as_model
from fiberscope.network.network import Network
from fiberscope.numerics.arrays import batch, real_array
from fiberscope.numerics.cutoffs import DISAGREE, LATE
from fiberscope.numerics.floats import FloatArray
from fiberscope.numerics.langevin import between_and_within, langevin
from fiberscope.results import Result
from fiberscope.run import Progress, Run

MEMORY = 1 << 30
"""Bytes of the Jacobian and of its squares."""

METHODS = ("mala", "sgld")
LOSSES = ("mse", "cross_entropy")


@dataclass(frozen=True, slots=True, eq=False)
class LearningCoefficient(Result):
    """An estimate of the local learning coefficient, with what it rests on. It is never a proof.

    ``estimate`` is the mean over all draws, ``standard_error`` the deviation of the means of the chains over the root
    of their number; it knows nothing of what no chain has seen. ``agreement`` compares the losses of chains (1 where
    they have met), ``spread`` how far they have gone: much more than 1 says that they have not gone all the way along
    the directions in which the loss is flat. In a regular model that does not matter; at a singularity the estimate is
    too low then, down to ``quadratic``. ``quadratic`` is what the estimate would be if the loss were its second-order
    approximation by the Jacobian: half the sum of ``n b h / (n b h + g)`` over the squares ``h`` of the singular values
    of ``J / sqrt(n)``. So ``n b`` and the localisation ``g`` say which directions can be seen at all. ``warnings`` are
    sentences.
    """

    estimate: float
    standard_error: float
    quadratic: float
    agreement: float
    spread: float
    acceptance: float
    nbeta: float
    localisation: float
    step: float
    loss: float
    num_parameters: int
    num_points: int
    chains: FloatArray = field(repr=False)
    method: str
    warnings: tuple[str, ...] = ()

    def __repr__(self) -> str:
        said = f"; {len(self.warnings)} warnings" if self.warnings else ""
        return (
            f"LearningCoefficient({self.estimate:.3g} +- {self.standard_error:.2g}, quadratic {self.quadratic:.3g}; "
            f"{self.num_parameters} parameters, {self.num_points} points{said})"
        )


def learning_coefficient(
    net: Any,
    X: Any,
    targets: Any = None,
    *,
    loss: str = "mse",
    nbeta: float | None = None,
    localisation: float = 1.0,
    chains: int = 8,
    draws: int = 1000,
    burn_in: int = 500,
    method: str = "mala",
    step: float | None = None,
    batch_size: int | None = None,
    seed: int = 0,
    memory: int = MEMORY,
    progress: Progress | None = None,
    time_limit: float | None = None,
) -> LearningCoefficient:
    r"""Estimate the local learning coefficient of a loss at the parameters of a model.

    .. math:: \hat\lambda = n \beta \left( \mathbb E\, L(w) - L(w^*) \right) , \qquad
              w \sim \exp\left( - n \beta\, L(w) - \tfrac \gamma 2 |w - w^*|^2 \right)

    Parameters
    ----------
    net
        A network, or any torch module (its numbers taken to float64; frozen parameters stay).
    X, targets
        Points, and numbers or labels for them. Without targets the outputs of the model itself are the targets: then
        ``w*`` is a minimum whatever the training has reached, and the coefficient is one of the function and its
        parametrisation alone.
    loss
        ``"mse"``, half the mean over points of squared distances, or ``"cross_entropy"``.
    nbeta
        The inverse temperature :math:`n \beta`; ``n / log n`` by default. The larger it is, the closer one looks.
    localisation
        :math:`\gamma`.
    chains, draws, burn_in
        Chains, draws of each, and draws of each that are thrown away first.
    method
        ``"mala"``: all points, Metropolis' correction, steps adapted while burning in, in coordinates that
        make the second derivatives alike. ``"sgld"``: no correction, on ``batch_size`` points at a time, with ``step``;
        its bias does not vanish with more draws.
    step
        First step of ``mala``, in those coordinates; the step of ``sgld``, a tenth of what is stable by default.
    seed, memory, progress, time_limit
        As everywhere.

    References
    ----------
    E. Lau, Z. Furman, G. Wang, D. Murfet, S. Wei: The local learning coefficient: a singularity-aware complexity
    measure. AISTATS 2025. S. Watanabe: Algebraic geometry and statistical learning theory. 2009.

    Examples
    --------
    A neuron that is on at all points: of four parameters two are a line, so the coefficient is 1.

    >>> net = Network([[[2.0]], [[3.0]]], [[9.0], [0.0]])
    >>> found = learning_coefficient(net, np.linspace(-1, 1, 20)[:, None], nbeta=1e4)
    >>> bool(abs(found.estimate - 1) < 4 * found.standard_error + 0.05)
    True
    """
    _check(loss, method, chains, draws, burn_in, batch_size)
    check_memory(memory)
    model, points = _model(as_model(net), X, memory)
    run = Run.begin(progress, time_limit)
    y = _targets(targets, loss, model, points)
    heat = points / np.log(max(points, 2)) if nbeta is None else float(nbeta)
    for name, value in (("nbeta", heat), ("localisation", localisation)):
        if not (np.isfinite(value) and value > 0):
            raise InputError(f"{name}: expected a positive number, got {value!r}")
    if step is not None and not step > 0:
        raise InputError(f"step: expected a positive number, got {step!r}")
    squares, axes = _second_order(model, points, memory)
    widths = 1 / np.sqrt(heat * squares + max(localisation, np.sqrt(heat * squares.mean())))
    adjusted = method == "mala"
    if not adjusted:
        widths = np.ones_like(widths)
    rng = np.random.default_rng(seed)
    size = points if batch_size is None else batch_size

    def potential(u: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        moved = (u * widths) @ axes.T
        rows = slice(None) if size >= points else rng.choice(points, size, replace=False)
        value, slope = model.loss(model.center + moved, y, loss, rows)
        energy = heat * value + localisation / 2 * (moved**2).sum(axis=1)
        return energy, ((heat * slope + localisation * moved) @ axes) * widths, value

    first = 0.5 / len(widths) ** (1 / 3) if adjusted else 0.1 / (heat * float(squares.max()) + localisation)
    start = np.zeros((chains, len(model.center)))
    found = langevin(
        potential,
        start,
        draws=draws,
        burn_in=burn_in,
        step=first if step is None else float(step),
        adjusted=adjusted,
        rng=rng,
        run=run,
    )
    at_center = float(loss_and_slope(model.outputs()[None], y, loss)[0][0])
    excess = heat * (found.recorded - at_center)
    means = excess.mean(axis=1)
    estimate, error = float(means.mean()), float(means.std(ddof=1) / np.sqrt(chains))
    agreement, spread = between_and_within(excess), between_and_within(found.distances)
    quadratic = float((heat * squares / (heat * squares + localisation)).sum() / 2)
    warnings = _warnings(estimate, error, agreement, found.acceptance, adjusted)
    if estimate - quadratic > 3 * error and not spread < DISAGREE:
        warnings += (
            f"the model is singular here and the chains have not gone all the way along the flat directions (ratio "
            f"{spread:.2f}): the estimate may be too low; take more draws, or a larger localisation",
        )
    return LearningCoefficient(
        estimate=estimate,
        standard_error=error,
        quadratic=quadratic,
        agreement=agreement,
        spread=spread,
        acceptance=found.acceptance,
        nbeta=heat,
        localisation=float(localisation),
        step=found.step,
        loss=at_center,
        num_parameters=len(model.center),
        num_points=points,
        chains=means,
        method=method,
        warnings=warnings,
    )


def _check(loss: str, method: str, chains: int, draws: int, burn_in: int, batch_size: int | None) -> None:
    for name, value, known in (("loss", loss, LOSSES), ("method", method, METHODS)):
        if value not in known:
            raise InputError(f"{name}: expected {' or '.join(map(repr, known))}, got {value!r}")
    for name, number, least in (("chains", chains, 2), ("draws", draws, 4), ("burn_in", burn_in, 0)):
        if int(number) != number or number < least:
            raise InputError(f"{name}: expected an integer of at least {least}, got {number!r}")
    if batch_size is not None and method != "sgld":
        raise InputError("batch_size: expected method='sgld' with it; the correction of 'mala' needs all points")
    if batch_size is not None and batch_size < 1:
        raise InputError(f"batch_size: expected a positive integer, got {batch_size!r}")


def _model(net: Any, X: Any, memory: int) -> tuple[Model, int]:
    if isinstance(net, Network):
        net = with_own_parameters(net)
        points = batch(X, net.in_size)
        return model_of(net, points), len(points)
    found: Model = modules.stacked.StackedModule(net, X, memory)
    return found, len(X)


def _targets(targets: Any, loss: str, model: Model, points: int) -> Any:
    outputs = model.outputs()
    if not np.isfinite(outputs).all():
        raise InputError("net: expected finite outputs on these points, got NaN or infinity")
    if targets is None:
        if loss != "mse":
            raise InputError("targets: expected labels for cross_entropy, got None")
        return outputs
    if loss == "mse":
        y = real_array(targets, "targets").reshape(points, -1)
        if y.shape != outputs.shape:
            raise InputError(f"targets: expected {outputs.shape[1]} numbers per point, got {y.shape[1]}")
        return y
    labels = np.asarray(targets)
    if labels.shape != (points,) or labels.dtype.kind not in "iu":
        raise InputError(f"targets: expected {points} labels, got {labels.dtype} of shape {labels.shape}")
    if labels.min() < 0 or labels.max() >= outputs.shape[1]:
        raise InputError(
            f"targets: expected labels from 0 to {outputs.shape[1] - 1}, got {labels.min()} to {labels.max()}"
        )
    return labels


def _second_order(model: Model, points: int, memory: int) -> tuple[FloatArray, FloatArray]:
    """Squares of the singular values of ``J / sqrt(n)``, and the axes that belong to them, as columns."""
    D = len(model.center)
    if not memory >= 8 * 3 * D * D:
        raise TooLargeError(
            f"the axes of {D} parameters need {24 * D * D / 2**30:.1f} GiB, the limit is {memory / 2**30:.1f} GiB; "
            "freeze parameters, or raise memory="
        )
    J = model.jacobian()
    squares, axes = np.linalg.eigh(J.T @ J / points)
    return np.maximum(squares, 0.0), np.asarray(axes)


def _warnings(estimate: float, error: float, agreement: float, acceptance: float, adjusted: bool) -> tuple[str, ...]:
    found = []
    if not agreement < DISAGREE:
        found.append(f"the chains have not met (ratio {agreement:.2f}): take more draws, or a larger localisation")
    if adjusted and not acceptance > LATE:
        found.append(f"only {acceptance:.0%} of the moves were accepted: take a longer burn_in")
    if not estimate > -2 * error:
        found.append("the loss falls below the one at the parameter: it is no minimum, and the estimate means little")
    if not adjusted:
        found.append("sgld: the steps are not corrected, and the bias is not part of the standard error")
    return tuple(found)
