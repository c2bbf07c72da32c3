"""The papers' synthetic tasks, deterministic from their seeds.

Sums of sines on an interval or a square (empirical NTK paper, section 5 and B.1); regressions on the circle and the
tractrix (data geometry paper, section 4 and H); Gaussian mixtures and the coherence task (neuron identifiability
paper, G.5 and G.6). Where a paper leaves a number open it is an option here, and its default is our choice.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fiberscope.errors import InputError
from fiberscope.numerics.floats import FloatArray
from fiberscope.training.datasets.dataset import Dataset
from fiberscope.training.datasets.registry import register_dataset

# Amplitude by frequency of the sines in x (and in y, where there is one), added to 1.5.
_UNIVARIATE: dict[str, dict[int, float]] = {
    "f1": {1: 1.0},
    "f2": {1: 1.0, 2: 0.5},
    "f3": {1: 1.0, 2: 0.5, 8: 0.4},
}
_BIVARIATE: dict[str, tuple[dict[int, float], dict[int, float]]] = {
    "g1": ({1: 1.0}, {1: 1.0}),
    "g2": ({1: 1.0, 2: 0.5}, {1: 1.0}),
    "g3": ({1: 1.0, 2: 0.5}, {1: 1.0, 2: 0.4}),
}


def sum_of_sines(x: FloatArray, amplitudes: dict[int, float]) -> FloatArray:
    """``sum over k of amplitudes[k] * sin(2 pi k x)``."""
    return np.asarray(sum(a * np.sin(2 * np.pi * k * x) for k, a in amplitudes.items()))


def target_function(name: str, X: FloatArray) -> FloatArray:
    """The noiseless target of ``f1 .. f3`` (``X``: ``(points, 1)``) or ``g1 .. g3`` (``(points, 2)``).

    >>> target_function("f2", np.array([[0.25]]))
    array([[2.5]])
    """
    if name in _UNIVARIATE:
        return 1.5 + sum_of_sines(X[:, :1], _UNIVARIATE[name])
    if name in _BIVARIATE:
        in_x, in_y = _BIVARIATE[name]
        return 1.5 + sum_of_sines(X[:, :1], in_x) + sum_of_sines(X[:, 1:2], in_y)
    raise InputError(f"target: expected one of {', '.join((*_UNIVARIATE, *_BIVARIATE))}, got {name!r}")


def _univariate(name: str, points: int, noise: float, seed: int) -> Dataset:
    _positive(points=points)
    rng = _generator(seed)
    x = np.linspace(0.0, 1.0, points)[:, None]
    y = target_function(name, x)
    # The noise of inputs comes first, so that f1, f2 and f3 of one seed have the same inputs.
    inputs = x + noise * rng.standard_normal(x.shape)
    targets = y + noise * rng.standard_normal(y.shape)
    return Dataset(name, inputs, targets, provenance=_made(points=points, noise=noise, seed=seed))


@register_dataset("f1", "1.5 + sin(2 pi x) on [0, 1], noisy")
def f1(*, points: int = 100, noise: float = 0.01, seed: int = 0) -> Dataset:
    """Equally spaced inputs, Gaussian noise on inputs and targets."""
    return _univariate("f1", points, noise, seed)


@register_dataset("f2", "f1 + 0.5 sin(4 pi x)")
def f2(*, points: int = 100, noise: float = 0.01, seed: int = 0) -> Dataset:
    """As ``f1``, one frequency more."""
    return _univariate("f2", points, noise, seed)


@register_dataset("f3", "f2 + 0.4 sin(16 pi x)")
def f3(*, points: int = 100, noise: float = 0.01, seed: int = 0) -> Dataset:
    """As ``f2``, one high frequency more."""
    return _univariate("f3", points, noise, seed)


def _bivariate(name: str, side: int, noise: float, seed: int) -> Dataset:
    _positive(side=side)
    ticks = np.linspace(0.0, 1.0, side)
    X = np.stack(np.meshgrid(ticks, ticks, indexing="ij"), axis=-1).reshape(-1, 2)
    rng = _generator(seed)
    inputs = X + noise * rng.standard_normal(X.shape)
    targets = target_function(name, X) + noise * rng.standard_normal((len(X), 1))
    return Dataset(name, inputs, targets, provenance=_made(side=side, noise=noise, seed=seed))


@register_dataset("g1", "1.5 + sin(2 pi x) + sin(2 pi y) on a grid of the unit square")
def g1(*, side: int = 20, noise: float = 0.0, seed: int = 0) -> Dataset:
    """A ``side x side`` grid; the paper adds no noise here."""
    return _bivariate("g1", side, noise, seed)


@register_dataset("g2", "g1 + 0.5 sin(4 pi x)")
def g2(*, side: int = 20, noise: float = 0.0, seed: int = 0) -> Dataset:
    """As ``g1``, one frequency more."""
    return _bivariate("g2", side, noise, seed)


@register_dataset("g3", "g2 + 0.4 sin(4 pi y)")
def g3(*, side: int = 20, noise: float = 0.0, seed: int = 0) -> Dataset:
    """As ``g2``, one frequency more."""
    return _bivariate("g3", side, noise, seed)


ARCS: dict[str, tuple[float, float]] = {"whole": (-np.pi, np.pi), "upper": (0.0, np.pi)}
"""The data geometry paper gives the parameters of the first, and speaks of the second too."""


def circle_points(t: FloatArray) -> FloatArray:
    """``(cos t, sin t)`` for every parameter."""
    return np.stack([np.cos(t), np.sin(t)], axis=-1)


def tractrix_points(t: FloatArray) -> FloatArray:
    """``(t - tanh t, 1 / cosh t)`` for every parameter."""
    return np.stack([t - np.tanh(t), 1 / np.cosh(t)], axis=-1)


def random_plane(dimension: int, seed: int) -> FloatArray:
    """Two orthonormal columns in ``R^dimension``, uniformly distributed; the identity for dimension 2."""
    if dimension < 2:
        raise InputError(f"dimension: expected at least 2, got {dimension}")
    if dimension == 2:
        return np.eye(2)
    return _frame(np.random.default_rng([seed, 2]), dimension, 2)


def _frame(rng: np.random.Generator, rows: int, columns: int) -> FloatArray:
    q, r = np.linalg.qr(rng.standard_normal((rows, columns)))
    # Without this sign the distribution would not be uniform.
    return np.asarray(q * np.where(np.diag(r) < 0, -1.0, 1.0))


def _on_curve(name: str, curve: Any, ends: tuple[float, float], options: dict[str, Any]) -> Dataset:
    _positive(points=options["points"], test_points=options["test_points"])
    plane = random_plane(options["dimension"], options["plane_seed"])
    rng = _generator(options["seed"])

    def draw(count: int) -> tuple[FloatArray, FloatArray]:
        t = rng.uniform(*ends, count)
        clean = options["amplitude"] * np.sin(options["frequency"] * t)
        return curve(t) @ plane.T, (clean + options["noise"] * rng.standard_normal(count))[:, None]

    inputs, targets = draw(options["points"])
    test_inputs, test_targets = draw(options["test_points"])
    return Dataset(name, inputs, targets, test_inputs, test_targets, _made(**options))


@register_dataset("circle", "a sin(nu t) on the circle, in the plane or in a random plane of R^n")
def circle(
    *,
    points: int = 1000,
    test_points: int = 1000,
    amplitude: float = 1.0,
    frequency: float = 4.0,
    noise: float = 0.1,
    dimension: int = 2,
    plane_seed: int = 0,
    arc: str = "whole",
    seed: int = 0,
) -> Dataset:
    """Uniform parameters in (-pi, pi), or in (0, pi) on the arc "upper"; Gaussian noise on the targets."""
    if arc not in ARCS:
        raise InputError(f"arc: expected {' or '.join(ARCS)}, got {arc!r}")
    options = {
        "arc": arc,
        "points": points,
        "test_points": test_points,
        "amplitude": amplitude,
        "frequency": frequency,
        "noise": noise,
        "dimension": dimension,
        "plane_seed": plane_seed,
        "seed": seed,
    }
    return _on_curve("circle", circle_points, ARCS[arc], options)


@register_dataset("tractrix", "a sin(nu t) on the tractrix, in the plane or in a random plane of R^n")
def tractrix(
    *,
    points: int = 1000,
    test_points: int = 1000,
    amplitude: float = 1.0,
    frequency: float = 4.0,
    noise: float = 0.1,
    dimension: int = 2,
    plane_seed: int = 0,
    seed: int = 0,
) -> Dataset:
    """Uniform parameters in (-3, 3), Gaussian noise on the targets."""
    options = {
        "points": points,
        "test_points": test_points,
        "amplitude": amplitude,
        "frequency": frequency,
        "noise": noise,
        "dimension": dimension,
        "plane_seed": plane_seed,
        "seed": seed,
    }
    return _on_curve("tractrix", tractrix_points, (-3.0, 3.0), options)


@register_dataset("gaussian_mixture", "classes in a k-dimensional subspace of R^d, turned and scaled apart")
def gaussian_mixture(
    *,
    intrinsic: int = 8,
    dimension: int = 128,
    classes: int = 5,
    points: int = 50_000,
    test_points: int = 10_000,
    separation: float = 1.0,
    smallest_scale: float = 0.3,
    scales: str = "geometric",
    turn_centers: bool = True,
    seed: int = 0,
) -> Dataset:
    """``x = P Q_c (mu_c + e)``: centres ``N(0, separation^2)``, anisotropic noise, a rotation per class.

    The paper's text (its appendix G.6) gives this form and neither the separation nor the scales of the noise nor
    ``P``. Here the ``Q_c`` are uniform orthogonal matrices and ``P`` has uniform orthonormal columns. The scales fall
    geometrically from 1 to ``smallest_scale``; with ``scales="normal"`` each is a draw from ``N(0, 1)``, as in the
    authors' code, which does not turn the centres either (``turn_centers=False``): ``x = P (mu_c + Q_c e)``.
    """
    if scales not in {"geometric", "normal"}:
        raise InputError(f"scales: expected 'geometric' or 'normal', got {scales!r}")
    _positive(intrinsic=intrinsic, classes=classes, points=points, test_points=test_points)
    if dimension < intrinsic:
        raise InputError(f"dimension: expected at least intrinsic = {intrinsic}, got {dimension}")
    rng = _generator(seed)
    embed = _frame(rng, dimension, intrinsic)
    centers = separation * rng.standard_normal((classes, intrinsic))
    turns = np.stack([_frame(rng, intrinsic, intrinsic) for _ in range(classes)])
    spread = np.geomspace(1.0, smallest_scale, intrinsic) if scales == "geometric" else rng.standard_normal(intrinsic)

    def draw(count: int) -> tuple[FloatArray, Any]:
        labels = rng.integers(classes, size=count)
        noise, middle = spread * rng.standard_normal((count, intrinsic)), centers[labels]
        turned = np.einsum("nij,nj->ni", turns[labels], middle + noise if turn_centers else noise)
        return (turned if turn_centers else middle + turned) @ embed.T, labels

    inputs, labels = draw(points)
    test_inputs, test_labels = draw(test_points)
    made = _made(
        intrinsic=intrinsic,
        dimension=dimension,
        classes=classes,
        points=points,
        test_points=test_points,
        separation=separation,
        smallest_scale=smallest_scale,
        scales=scales,
        turn_centers=turn_centers,
        seed=seed,
    )
    return Dataset("gaussian_mixture", inputs, labels, test_inputs, test_labels, made)


def coherence_embedding(embedding: str, copies: int, dimension: int = 20, seed: int = 0) -> FloatArray:
    """``U_k``, ``(dimension, 2)`` with orthonormal columns: ``k = copies`` pairs of rows carry the latent plane.

    ``"copy"``: rows ``2r-1`` and ``2r`` are the two unit vectors over ``sqrt(k)``. ``"frame"``: the same with random
    angles and a random order of the rows, both drawn from ``seed`` and shared by all ``k``. The coherence (largest
    diagonal entry of ``U U^T``) is ``1 / k`` in both.

    >>> U = coherence_embedding("copy", 4)
    >>> float((U @ U.T).diagonal().max())
    0.25
    """
    if not 1 <= copies <= dimension // 2:
        raise InputError(f"copies: expected 1 to {dimension // 2}, got {copies}")
    if embedding not in {"copy", "frame"}:
        raise InputError(f"embedding: expected 'copy' or 'frame', got {embedding!r}")
    angles, rows = np.zeros(dimension // 2), np.arange(dimension)
    if embedding == "frame":
        rng = np.random.default_rng([seed, 1])
        rows = rng.permutation(dimension)
        angles = rng.uniform(0, np.pi, dimension // 2)
    U = np.zeros((dimension, 2))
    cos, sin = np.cos(angles[:copies]), np.sin(angles[:copies])
    U[rows[0 : 2 * copies : 2]] = np.stack([cos, sin], axis=1)
    U[rows[1 : 2 * copies : 2]] = np.stack([-sin, cos], axis=1)
    return np.asarray(U / np.sqrt(copies))


@register_dataset("coherence", "relu(a + b) with (a, b) embedded in R^20 at coherence 1 / copies")
def coherence(
    *,
    embedding: str = "copy",
    copies: int = 1,
    dimension: int = 20,
    points: int = 1024,
    test_points: int = 2048,
    embedding_seed: int = 0,
    seed: int = 0,
) -> Dataset:
    """A teacher in two latent variables; the same latent sample for every embedding and number of copies."""
    _positive(points=points, test_points=test_points)
    U = coherence_embedding(embedding, copies, dimension, embedding_seed)
    rng = _generator(seed)
    latent, held_out = rng.standard_normal((points, 2)), rng.standard_normal((test_points, 2))
    made = _made(
        embedding=embedding,
        copies=copies,
        dimension=dimension,
        points=points,
        test_points=test_points,
        embedding_seed=embedding_seed,
        seed=seed,
    )
    return Dataset("coherence", latent @ U.T, _teacher(latent), held_out @ U.T, _teacher(held_out), made)


def _teacher(latent: FloatArray) -> FloatArray:
    return np.asarray(np.maximum(latent.sum(axis=1, keepdims=True), 0.0))


def _generator(seed: int) -> np.random.Generator:
    return np.random.default_rng([seed, 0])


def _made(**options: Any) -> dict[str, Any]:
    return {"kind": "synthetic", "options": options}


def _positive(**counts: int) -> None:
    for name, count in counts.items():
        if int(count) != count or count < 1:
            raise InputError(f"{name}: expected a positive integer, got {count!r}")
