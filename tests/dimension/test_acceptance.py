"""Inputs that are easily wrong, answered or refused in words: frozen, shared, bf16, kinks, size, tokens."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

import fiberscope as fs
from fiberscope.errors import FiberscopeError, NotGenericError, TooLargeError

X = np.random.default_rng(0).normal(size=(9, 2))


def relu_module() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1))


def test_frozen_parameters_are_counted_unless_they_are_left_out() -> None:
    module = relu_module()
    module[0].weight.requires_grad_(False)
    whole = fs.functional_dimension(module, X, ranks="exact")
    rest = fs.functional_dimension(module, X, ranks="exact", parameters="requires_grad")
    assert (whole.num_parameters, rest.num_parameters) == (13, 7)
    assert rest.exact is not None and whole.exact is not None and rest.exact <= whole.exact


def test_a_layer_that_is_called_twice_has_its_parameters_once() -> None:
    torch.manual_seed(1)
    layer = nn.Linear(2, 2)
    module = nn.Sequential(layer, nn.ReLU(), layer, nn.ReLU(), nn.Linear(2, 1))
    found = fs.functional_dimension(module, X, ranks=("exact", "numerical"))
    assert found.num_parameters == 9
    J = np.asarray(fs.jacobian(module.double(), X))
    assert J.shape == (9, 9) and found.numerical == np.linalg.matrix_rank(J) == found.exact


def test_half_precision_is_exact_all_the_same() -> None:
    module = relu_module().to(torch.bfloat16)
    found = fs.functional_dimension(module, X, ranks="exact")
    twin = relu_module().to(torch.bfloat16).double()
    assert found.exact == fs.functional_dimension(twin, X, ranks="exact").exact


def test_half_precision_of_a_smooth_module_has_numerical_ranks() -> None:
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(2, 3), nn.Tanh(), nn.Linear(3, 1)).to(torch.bfloat16)
    found = fs.functional_dimension(module, X)
    assert found.exact is None and found.numerical is not None


def test_all_points_on_kinks_are_named() -> None:
    net = fs.Network([[[1.0]], [[1.0]]], [[0.0], [0.0]])
    with pytest.raises(NotGenericError, match=r"all 2 points lie on kinks.*point 0: neuron"):
        fs.functional_dimension(net, [[0.0], [0.0]])


def test_more_rows_than_memory_are_streamed_or_refused_with_the_size() -> None:
    net = fs.Network.random((2, 6, 1), 0)
    many = np.random.default_rng(0).normal(size=(4000, 2))
    small = 8 * 6 * net.num_parameters**2
    streamed = fs.functional_dimension(net, many, ranks="exact", memory=small)
    assert streamed.exact == fs.functional_dimension(net, many, ranks="exact").exact
    with pytest.raises(TooLargeError, match=r"Jacobian needs .* GiB"):
        fs.functional_dimension(net, many, ranks="exact", memory=1000)


def test_tokens_have_numerical_ranks_and_are_refused_where_exact_is_asked() -> None:
    torch.manual_seed(0)
    module = nn.Sequential(nn.Embedding(5, 2), nn.Flatten(), nn.Linear(6, 2))
    tokens = np.random.default_rng(0).integers(0, 5, (4, 3))
    found = fs.functional_dimension(module, tokens)
    assert found.exact is None and found.numerical == np.linalg.matrix_rank(np.asarray(fs.jacobian(module, tokens)))
    with pytest.raises(FiberscopeError, match="exact"):
        fs.functional_dimension(module, tokens, exact=True)
