"""scikit-learn's multilayer perceptrons.

The network is the function before the output activation: a classifier's logits, not its probabilities. A hidden
activation ``"identity"`` makes linear neurons.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.neural_network import MLPClassifier, MLPRegressor

from fiberscope.errors import InputError, UnsupportedModelError
from fiberscope.network.network import Network


def read(model: Any, input_shape: tuple[int, ...] | None) -> Network:
    """The network of a fitted ``MLPClassifier`` or ``MLPRegressor`` with activation ``"relu"`` or ``"identity"``.

    >>> model = MLPRegressor(hidden_layer_sizes=(3,)).partial_fit(np.eye(2), [0.0, 1.0])
    >>> read(model, None).widths
    (2, 3, 1)
    """
    kind = type(model).__name__
    if not isinstance(model, MLPClassifier | MLPRegressor):
        raise UnsupportedModelError(f"{kind}: expected an MLPClassifier or MLPRegressor")
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
