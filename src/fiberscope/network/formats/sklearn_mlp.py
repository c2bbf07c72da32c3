"""scikit-learn's multilayer perceptrons, alone or at the end of a pipeline of scalers.

The network is the function before the output activation: a classifier's logits, not its probabilities. A hidden
activation ``"identity"`` makes linear neurons. Scalers are constants of the model: a shift, then factors, where a
division becomes a factor that is rounded once; one that clips (``clip=True``) ends in a clip.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import MaxAbsScaler, MinMaxScaler, RobustScaler, StandardScaler

from fiberscope.errors import InputError, UnsupportedModelError
from fiberscope.network.network import Network
from fiberscope.network.nodes import Affine, Clip, Given, behind
from fiberscope.network.operators import Scale
from fiberscope.numerics.arrays import real_array


def read(model: Any, input_shape: tuple[int, ...] | None) -> Network:
    """The network of a fitted ``MLPClassifier`` or ``MLPRegressor`` with activation ``"relu"`` or ``"identity"``.

    >>> model = MLPRegressor(hidden_layer_sizes=(3,)).partial_fit(np.eye(2), [0.0, 1.0])
    >>> read(model, None).widths
    (2, 3, 1)
    """
    *scalers, last = _steps(model)
    net = _perceptron(last)
    front: list[Given] = []
    for scaler in scalers:
        for factors, shift in _scaling(scaler):
            front.append(Affine(len(front), Scale(factors, (net.in_size,)), shift))
        if getattr(scaler, "clip", False):
            low, high = scaler.feature_range if isinstance(scaler, MinMaxScaler) else (-1.0, 1.0)
            front.append(Clip(len(front), np.array(low), np.array(high), (net.in_size,)))
    if not front:
        return net
    return Network.from_nodes([*front, *behind(net.nodes, len(front))], net.input_shape, net.source)


def _steps(model: Any) -> Iterator[Any]:
    """What is done one after the other, pipelines inside of pipelines taken apart."""
    if isinstance(model, Pipeline):
        for _, step in model.steps:
            if step is not None and not (isinstance(step, str) and step == "passthrough"):
                yield from _steps(step)
    else:
        yield model


def _perceptron(model: Any) -> Network:
    kind = type(model).__name__
    if not isinstance(model, MLPClassifier | MLPRegressor):
        raise UnsupportedModelError(
            f"{kind}: expected an MLPClassifier or MLPRegressor, or a Pipeline that ends in one"
        )
    if not hasattr(model, "coefs_"):
        raise InputError(f"{kind}: expected a fitted model, got one without weights; call fit first")
    if model.activation not in ("relu", "identity"):
        raise UnsupportedModelError(
            f"{kind}: activation {model.activation!r} is not piecewise linear; expected 'relu' or 'identity'"
        )
    weights = [np.asarray(coefficients).T for coefficients in model.coefs_]
    linear = None
    if model.activation == "identity":
        linear = [np.ones(len(weight), dtype=bool) for weight in weights[:-1]]
    return Network(weights, model.intercepts_, linear=linear)


def _scaling(scaler: Any) -> Iterator[tuple[Any, Any]]:
    """Factors and shifts, ``x -> factors x + shift`` one after the other."""
    kind = type(scaler).__name__
    if not isinstance(scaler, StandardScaler | MinMaxScaler | MaxAbsScaler | RobustScaler):
        raise UnsupportedModelError(
            f"{kind}: not supported in a pipeline; expected scalers (StandardScaler, MinMaxScaler, MaxAbsScaler, "
            "RobustScaler) and an MLP at the end"
        )
    if not hasattr(scaler, "scale_"):
        raise InputError(f"{kind}: expected a fitted scaler, got one without factors; call fit first")
    if isinstance(scaler, MinMaxScaler):
        yield real_array(scaler.scale_, "scale"), real_array(scaler.min_, "shift")
        return
    if isinstance(scaler, StandardScaler):
        centre = scaler.mean_ if scaler.with_mean else None
    else:
        centre = scaler.center_ if isinstance(scaler, RobustScaler) and scaler.with_centering else None
    if centre is not None:
        yield np.ones(()), 0.0 - real_array(centre, "centre")
    if scaler.scale_ is not None:
        yield real_array(1 / real_array(scaler.scale_, "scale"), "factors"), None
