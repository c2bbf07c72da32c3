"""One model out of several: means of parameters, in one way or another, after their neurons are aligned.

Three rules, tensor by tensor: see :mod:`fiberscope.connectivity.means`.
Fine-tunes of one base rarely need alignment: their neurons have not moved far. Independent trainings do.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from fiberscope.connectivity.consensus import match_many
from fiberscope.connectivity.matching import match
from fiberscope.connectivity.means import KEPT, rounded, rule_of
from fiberscope.connectivity.paths import check_comparable, check_finite, mixed_state, with_state
from fiberscope.connectivity.structure import Structure
from fiberscope.errors import InputError
from fiberscope.modules.calls import Selector
from fiberscope.modules.parametrisations import plain
from fiberscope.network.border import as_torch
from fiberscope.run import Progress

ALIGNMENTS = ("weights", "activations")


def merge(
    models: Sequence[Any],
    method: str = "weights",
    *,
    weights: Sequence[float] | None = None,
    align: str | None = "weights",
    structure: Structure | None = None,
    data: Any = None,
    base: Any = None,
    keep: float = KEPT,
    output: Selector = None,
    progress: Progress | None = None,
    time_limit: float | None = None,
) -> nn.Module:
    """One model out of several of one architecture; a new module, in the order of the first one's neurons.

    Parameters
    ----------
    models
        Two or more; they are not changed.
    method
        ``"weights"``, the mean; ``"slerp"``, for two models; ``"ties"``, with a ``base``.
    weights
        How much each model counts: positive numbers, divided by their sum. Equal ones by default.
    align
        Bring the neurons of all models into the order of the first by ``"weights"`` (for more than two together:
        :func:`fiberscope.match_many`) or by ``"activations"`` on ``data`` before; None leaves them. For TIES they are
        always left: all models must come from the base.
    structure, data, output
        As for :func:`fiberscope.match`.
    base, keep
        For TIES: what all models were trained from, and the part of the changes in each tensor that is kept.

    Examples
    --------
    >>> a, b = (nn.Sequential(nn.Linear(1, 2), nn.ReLU(), nn.Linear(2, 1)) for _ in range(2))
    >>> b.load_state_dict({key: value.flip(-1 if "2.w" in key else 0) for key, value in a.state_dict().items()})
    <All keys matched successfully>
    >>> torch.allclose(merge([a, b])(torch.ones(1, 1)), a(torch.ones(1, 1)))
    True
    """
    if align is not None and align not in ALIGNMENTS:
        raise InputError(f"align: expected one of {', '.join(ALIGNMENTS)} or None, got {align!r}")
    if isinstance(models, nn.Module) or len(models) < 2:
        raise InputError("models: expected two at least, in a list")
    rule = rule_of(method, weights, len(models), keep)
    modules = [plain(as_torch(model, f"models[{k}]")) for k, model in enumerate(models)]
    for k, other in enumerate(modules):
        check_comparable(modules[0], other)
        check_finite(other, f"models[{k}]")
    watch: dict[str, Any] = {"progress": progress, "time_limit": time_limit}
    if method == "ties":
        if base is None:
            raise InputError("base: expected the model that all were trained from, for ties, got None")
        start = plain(as_torch(base, "base"))
        check_comparable(start, modules[0])
        modules = [start, *modules]
    elif align == "weights" and len(modules) > 2:
        modules = list(match_many(modules, structure, data=data, output=output, **watch).apply(modules))
    elif align is not None:
        found = (match(modules[0], one, structure, align, data, output=output, **watch) for one in modules[1:])
        modules = [modules[0], *(one.apply(other) for one, other in zip(found, modules[1:], strict=True))]
    states = [mixed_state(modules[0], other, 1.0) for other in modules]
    with torch.no_grad():
        merged = {name: rounded([state[name] for state in states], rule) for name in states[0]}
    return with_state(modules[0], merged)
