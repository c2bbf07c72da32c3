"""Derivatives of torch modules: against networks, finite differences, reused and tied layers, chunks."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from fiberscope.dimension.functional import functional_dimension
from fiberscope.dimension.jacobian import jacobian
from fiberscope.dimension.kernels.kernel import ntk
from fiberscope.dimension.kernels.spectrum import kernel_spectrum
from fiberscope.errors import InputError, TooLargeError, UnsupportedModelError
from fiberscope.modules import derivatives
from fiberscope.testing import case


def by_autograd(module, X):
    """Row by row with plain backward passes."""
    module.eval()
    rows = []
    for x in X:
        for value in module(x[None]).reshape(-1):
            grads = torch.autograd.grad(value, list(module.parameters()), retain_graph=True, allow_unused=True)
            pairs = zip(grads, module.parameters(), strict=True)
            rows.append(torch.cat([(torch.zeros_like(p) if g is None else g).reshape(-1) for g, p in pairs]))
    return torch.stack(rows)


class Reused(nn.Module):
    """One layer twice, and a tensor with two names."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(3, 3)
        self.tied = nn.Linear(3, 3)
        self.tied.weight = self.layer.weight
        self.scale = nn.Parameter(torch.tensor(0.7))

    def forward(self, x):
        return self.scale * self.tied(torch.tanh(self.layer(torch.relu(self.layer(x)))))


MODULES = {
    "gelu": lambda: nn.Sequential(nn.Linear(4, 5), nn.GELU(), nn.Linear(5, 2)),
    "reused": Reused,
    "prelu": lambda: nn.Sequential(nn.Linear(4, 5), nn.PReLU(5), nn.Linear(5, 2), nn.PReLU()),
    "weight_norm": lambda: nn.Sequential(nn.utils.parametrizations.weight_norm(nn.Linear(4, 3)), nn.ReLU()),
    "images": lambda: nn.Sequential(
        nn.Conv2d(1, 2, 3),
        nn.BatchNorm2d(2),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Dropout(0.5),
        nn.Linear(8, 2),
    ),
}
SHAPES = {"gelu": (4,), "prelu": (4,), "weight_norm": (4,), "reused": (3,), "images": (1, 6, 6)}


@pytest.fixture(params=sorted(MODULES))
def example(request):
    torch.manual_seed(0)
    module = MODULES[request.param]().double()
    return module, torch.randn(5, *SHAPES[request.param], dtype=torch.float64)


def test_jacobian_and_kernel_agree_with_autograd(example, monkeypatch):
    module, X = example
    module.train()
    expected = by_autograd(module, X).detach()
    module.train()
    Y = X[:3] + 0.1
    for memory in (1 << 28, 1):  # all at once, and point by point
        monkeypatch.setattr(derivatives, "CHUNK_BYTES", memory)
        found = jacobian(module, X)
        torch.testing.assert_close(found, expected)
        K = ntk(module, X)
        torch.testing.assert_close(K, expected @ expected.T)
        assert torch.equal(K, K.T)
        torch.testing.assert_close(ntk(module, X, Y), expected @ by_autograd(module, Y).detach().T)
        module.train()
    assert all(part.training for part in module.modules())


def test_flags_come_back_one_by_one_also_after_an_error():
    module = nn.Sequential(nn.Linear(2, 2), nn.Dropout(), nn.Linear(2, 1))
    module[1].eval()
    with pytest.raises(InputError):
        jacobian(module, torch.zeros(3, 5))
    assert [part.training for part in module] == [True, False, True]


def test_agrees_with_the_network():
    net = case("chain")
    X = np.random.default_rng(0).normal(size=(6, 2))
    module = net.to_torch()
    np.testing.assert_allclose(jacobian(module, X).numpy(), jacobian(net, X), atol=1e-13)
    np.testing.assert_allclose(ntk(module, X).numpy(), ntk(net, X), atol=1e-12)


def test_dtype_is_the_modules():
    module = nn.Linear(2, 1)
    assert jacobian(module, np.zeros((3, 2))).dtype == torch.float32
    assert jacobian(module, torch.ones(1, 2)).tolist() == [[1.0, 1.0, 1.0]]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
@pytest.mark.parametrize("name", ["gelu", "prelu"])
def test_every_precision(name, dtype):
    torch.manual_seed(0)
    module = MODULES[name]().to(dtype)
    X = np.random.default_rng(0).normal(size=(30, 4)).astype(np.float32)
    assert jacobian(module, X).dtype == ntk(module, X).dtype == dtype
    result = functional_dimension(module, X)
    assert (result.exact is None) == (name == "gelu")
    found = kernel_spectrum(module, X, count=4)
    module = module.double()  # the same numbers, to which the ranks and the spectrum belong
    X = torch.as_tensor(X).double()
    assert result.numerical == np.linalg.matrix_rank(jacobian(module, X).numpy())
    K = ntk(module, X).numpy()
    np.testing.assert_allclose(found.eigenvalues, np.linalg.eigvalsh(K)[::-1][:4], rtol=1e-9)
    assert found.trace == pytest.approx(np.trace(K))


def test_the_spectrum_belongs_to_the_parameters_of_the_module(example):
    """A normalised weight, a learned slope, a shared layer: not those of the network that computes the same."""
    module, X = example
    module.eval()
    found = kernel_spectrum(module, X.numpy(), count=2)
    K = ntk(module, X).numpy()
    np.testing.assert_allclose(found.eigenvalues, np.linalg.eigvalsh(K)[::-1][:2], rtol=1e-9)
    assert found.size == len(K)


class Unwilling(nn.Linear):
    """Raises what a module may raise."""

    def __init__(self, error):
        super().__init__(2, 1)
        self.error = error

    def forward(self, x):
        raise self.error


@pytest.mark.parametrize(
    "error", [KeyError("mask"), TypeError("two\nlines"), NotImplementedError(), ZeroDivisionError()]
)
def test_what_a_module_raises_is_one_line(error):
    for question in (jacobian, ntk, kernel_spectrum, functional_dimension):
        with pytest.raises((InputError, UnsupportedModelError)) as caught:
            question(Unwilling(error), np.zeros((2, 2)))
        assert "\n" not in str(caught.value)


def test_lists_keep_their_digits():
    module = nn.Linear(1, 1).double()
    assert jacobian(module, [[0.1]]).tolist() == [[0.1, 1.0]]
    for bad in ([["a"]], [[0.1], [0.2, 0.3]], object()):
        with pytest.raises(InputError):
            jacobian(module, bad)


@pytest.mark.parametrize("limit", [0, -1, float("nan")])
def test_limits_that_limit_nothing_are_refused(limit):
    for net in (nn.Linear(2, 1), case("chain")):
        for question in (jacobian, ntk, functional_dimension):
            with pytest.raises(InputError, match="memory: expected a positive number"):
                question(net, np.zeros((2, 2)), memory=limit)


def test_bad_input():
    module = nn.Linear(2, 1)
    for bad, text in [
        (torch.zeros(0, 2), "non-empty"),
        (torch.zeros(3, 5), "does not take points"),
        (torch.full((1, 2), torch.nan), "finite"),
        (torch.zeros(3, 2, dtype=torch.int64), "floating-point"),
    ]:
        with pytest.raises(InputError, match=text):
            jacobian(module, bad)
    with pytest.raises(UnsupportedModelError, match="with parameters"):
        jacobian(nn.ReLU(), torch.zeros(1, 2))
    with pytest.raises(TooLargeError, match="GiB"):
        jacobian(module, torch.zeros(100, 2), memory=100)
    with pytest.raises(TooLargeError, match="kernel"):
        ntk(module, torch.zeros(100, 2), memory=100)
    broken = nn.Linear(2, 1)
    broken.weight.data[:] = torch.nan
    with pytest.raises(InputError, match="parameter weight"):
        jacobian(broken, torch.zeros(1, 2))


def test_learned_slopes_where_points_and_outputs_are_equally_many():
    """Torch's rule for all outputs of all points at once mixes the two up then."""
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(3, 4), nn.PReLU(4), nn.Linear(4, 2)).double()
    X = torch.randn(2, 3, dtype=torch.float64)
    outputs = module(X).reshape(-1)
    rows = [torch.autograd.grad(value, list(module.parameters()), retain_graph=True) for value in outputs]
    want = torch.stack([torch.cat([part.reshape(-1) for part in row]) for row in rows])
    torch.testing.assert_close(jacobian(module, X), want)
    torch.testing.assert_close(ntk(module, X), want @ want.T)
