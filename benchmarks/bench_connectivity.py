"""Recording, barriers and matching against the obvious ways: keep all samples, copy the model for every point."""

from __future__ import annotations

import time
from copy import deepcopy
from itertools import pairwise
from typing import Any

import numpy as np

from bench_structure import resnet as resnet18
from fiberscope.connectivity.barrier import barrier
from fiberscope.connectivity.matching import match
from fiberscope.connectivity.paths import interpolate
from fiberscope.connectivity.structure import permutation_structure
from fiberscope.modules.models import mlp, resnet20, vit
from fiberscope.modules.recording import record_inputs
from harness import Case


def close(a: Any, b: Any) -> bool:
    return bool(np.allclose(a, b, rtol=1e-4, atol=1e-5))


def points(count: int, width: int, classes: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    return rng.normal(size=(count, width)).astype(np.float32), rng.integers(0, classes, count)


def slow_barrier(a: Any, b: Any, data: tuple[np.ndarray, np.ndarray], count: int) -> np.ndarray:
    """A new model for each point of the path."""
    import torch

    X, y = map(torch.as_tensor, data)
    with torch.no_grad():
        losses = [
            float(torch.nn.functional.cross_entropy(interpolate(a, b, t).eval()(X), y))
            for t in np.linspace(0, 1, count)
        ]
    return np.array(losses)


def barrier_case(widths: tuple[int, ...], count: int, quick: bool) -> Case:
    a, b = mlp(widths, 0), mlp(widths, 1)
    data = points(count, widths[0], widths[-1])
    return Case(
        method=f"barrier, 25 points, {count} inputs",
        network="-".join(map(str, widths)),
        ours=lambda: barrier(a, b, "cross_entropy", data).curve,
        reference=lambda: slow_barrier(a, b, data, 25),
        agree=close,
        quick=quick,
    )


def slow_moments(net: Any, X: np.ndarray) -> np.ndarray:
    """All inputs of the second layer at once, in float64."""
    import torch

    with torch.no_grad():
        hidden = deepcopy(net)[:4].eval()(torch.as_tensor(X)).double().numpy()
    return np.asarray(hidden.T @ hidden / len(hidden))


def recording_case(widths: tuple[int, ...], count: int, quick: bool) -> Case:
    net = mlp(widths, 0)
    X, _ = points(count, widths[0], 2)
    return Case(
        method=f"second moments of {count} hidden inputs",
        network="-".join(map(str, widths)),
        ours=lambda: record_inputs(net, "linear1", X)["linear1"].second_moment,
        reference=lambda: slow_moments(net, X),
        agree=close,
        quick=quick,
    )


def slow_match(a: Any, b: Any, X: np.ndarray) -> list[list[int]]:
    """All activations of both networks, and the correlation matrix of the two stacked."""
    import torch
    from scipy.optimize import linear_sum_assignment

    def activations(net: Any) -> list[np.ndarray]:
        found, value = [], torch.as_tensor(X)
        with torch.no_grad():
            for name, part in deepcopy(net).eval().named_children():
                value = part(value)
                if name.startswith("act"):
                    found.append(value.double().numpy())
        return found

    orders = []
    for left, right in zip(activations(a), activations(b), strict=True):
        width = left.shape[1]
        S = np.corrcoef(left.T, right.T)[:width, width:]
        orders.append(linear_sum_assignment(S, maximize=True)[1].tolist())
    return orders


def match_case(widths: tuple[int, ...], count: int, quick: bool) -> Case:
    import torch

    a = mlp(widths, 0)
    X, _ = points(count, widths[0], 2)
    structure = permutation_structure(a, torch.as_tensor(X[:10])).only("permutation")
    b = structure.apply(a, structure.random(1))
    return Case(
        method=f"planted permutation from {count} activations",
        network="-".join(map(str, widths)),
        ours=lambda: [order.tolist() for order in match(a, b, data=X).permutations.values()],
        reference=lambda: slow_match(a, b, X),
        quick=quick,
    )


def slow_weights(a: Any, b: Any) -> float:
    """Git Re-Basin's algorithm by the book on a chain, from the identity; the distance that is left."""
    from scipy.optimize import linear_sum_assignment

    x, y = (
        [
            (part.weight.detach().double().numpy(), part.bias.detach().double().numpy())
            for part in net
            if has_weight(part)
        ]
        for net in (a, b)
    )
    orders = [np.arange(len(bias)) for _, bias in y[:-1]]
    rng = np.random.default_rng(0)

    def moved(k: int) -> tuple[np.ndarray, np.ndarray]:
        weight, bias = y[k]
        if k > 0:
            weight = weight[:, orders[k - 1]]
        return (weight, bias) if k == len(y) - 1 else (weight[orders[k]], bias[orders[k]])

    changed = True
    while changed:
        changed = False
        for k in rng.permutation(len(orders)):
            (now, bias), (after, _) = moved(k), moved(k + 1)
            gains = x[k][0] @ now.T + np.outer(x[k][1], bias) + x[k + 1][0].T @ after
            best = linear_sum_assignment(gains, maximize=True)[1]
            if gains[np.arange(len(best)), best].sum() > np.trace(gains) + 1e-9:
                orders[k] = orders[k][best]
                changed = True
    squares = [np.square(x[k][j] - moved(k)[j]).sum() for k in range(len(x)) for j in range(2)]
    return float(np.sqrt(np.sum(squares)))


def has_weight(part: Any) -> bool:
    return hasattr(part, "weight")


def chain(widths: tuple[int, ...], seed: int) -> Any:
    """Linear layers with torch's own initial weights, and ReLU between them."""
    import torch
    from torch import nn

    torch.manual_seed(seed)
    layers: list[Any] = []
    for before, after in pairwise(widths):
        layers += [nn.Linear(before, after), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def weights_case(widths: tuple[int, ...], quick: bool) -> Case:
    import torch

    a, b = chain(widths, 0), chain(widths, 7)
    structure = permutation_structure(a, torch.zeros(1, widths[0]))
    return Case(
        method="independent pair by weights, distance left",
        network="-".join(map(str, widths)),
        ours=lambda: match(a, b, structure, "weights").distances,
        reference=lambda: slow_weights(a, b),
        agree=lambda ours, theirs: bool(ours[1] <= theirs * (1 + 1e-2)),
        quick=quick,
    )


def cases() -> list[Case]:
    return [
        weights_case((8, 32, 32, 3), quick=True),
        weights_case((784, 512, 512, 512, 10), quick=False),
        barrier_case((8, 32, 32, 3), 200, quick=True),
        barrier_case((784, 512, 512, 512, 10), 2000, quick=False),
        recording_case((32, 64, 2), 2000, quick=True),
        recording_case((784, 512, 10), 20_000, quick=False),
        match_case((8, 32, 32, 3), 1000, quick=True),
        match_case((784, 512, 512, 512, 10), 2000, quick=False),
    ]


def planted(name: str, module: Any, example: Any, rounds: int = 3) -> None:
    """CPU seconds of the structure and of a planted element found again, the quickest of a few."""
    structure, spent = None, []
    for _ in range(rounds):
        begin = time.process_time()
        structure = permutation_structure(module, example)
        spent.append(time.process_time() - begin)
    assert structure is not None
    element = structure.only("permutation").random(1)
    other = structure.apply(module, element)
    taken, found = [], None
    for _ in range(rounds):
        begin = time.process_time()
        found = match(module, other, structure, "weights")
        taken.append(time.process_time() - begin)
    assert found is not None
    back = (found.element @ element).is_identity
    print(f"{name:34} structure {min(spent):6.3f} s, matching {min(taken):6.3f} s, recovered: {back}")


def structured(name: str, module: Any, example: Any, rounds: int = 3) -> None:
    """CPU seconds of a structure with its self-check, the quickest of a few, and of one run in float64."""
    import torch

    spent, runs, groups = [], [], 0
    copy = deepcopy(module).double()
    for _ in range(rounds):
        begin = time.process_time()
        groups = len(permutation_structure(module, example).groups)
        spent.append(time.process_time() - begin)
        begin = time.process_time()
        with torch.no_grad():
            copy(example.double())
        runs.append(time.process_time() - begin)
    print(f"{name:34} structure {min(spent):6.3f} s, {groups} groups; one run in float64 {min(runs):.3f} s")


def main() -> None:
    """The marks of matching by weights, in CPU seconds of one thread."""
    import torch

    from fiberscope.connectivity.selfcheck import draw

    torch.set_num_threads(1)
    widths = (784, 512, 512, 512, 10)
    planted("planted 784-512-512-512-10", chain(widths, 0), torch.randn(2, 784))
    begin = time.process_time()
    found = match(chain(widths, 0), chain(widths, 7), method="weights")
    print(f"independent pair: distance {found.distances}, {time.process_time() - begin:.3f} s with the structure")
    resnet = resnet20(4)
    draw(resnet, 0)
    planted("planted ResNet20, width 4", resnet, torch.randn(1, 3, 32, 32))
    structured("ResNet18, 64 x 64 pixels", resnet18(), torch.randn(1, 3, 64, 64))
    tiny = vit(192, 12, 3, 0, image=224, patch=16, channels=3, classes=1000)
    structured("ViT-tiny, 224 x 224 pixels", tiny, torch.randn(1, 3, 224, 224))
    try:
        import transformers
    except ImportError:
        print("transformers is not installed: no planted Llama, GPT-2 and ViT")
        return
    sizes = {"hidden_size": 256, "num_attention_heads": 8, "intermediate_size": 688, "num_hidden_layers": 2}
    tokens = {"input_ids": torch.randint(3, 500, (1, 8))}
    common = {"vocab_size": 512, "bos_token_id": 0, "eos_token_id": 1}
    llama = transformers.LlamaConfig(**sizes, **common, num_key_value_heads=2)
    planted("planted Llama 2 x 256, 8/2 heads", transformers.LlamaForCausalLM(llama).eval(), tokens)
    gpt = transformers.GPT2Config(n_embd=256, n_head=8, n_layer=2, n_positions=64, **common)
    planted("planted GPT-2 2 x 256, 8 heads", transformers.GPT2LMHeadModel(gpt).eval(), tokens)
    image = transformers.ViTConfig(**sizes, image_size=32, patch_size=8)
    images = transformers.ViTForImageClassification(image).eval()
    planted("planted ViT 2 x 256, 8 heads", images, {"pixel_values": torch.randn(1, 3, 32, 32)})


if __name__ == "__main__":
    main()
