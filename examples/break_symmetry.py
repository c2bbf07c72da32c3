"""Does an architecture tell its neurons apart? Fixed parts of the weights, and neurons that agree across trainings.

The same small network is trained twice: plain, with a mask of zeros, and with large fixed weights at the same places.
Only the last gives every neuron an identity: the identity permutation is then nearly the best matching, and the two
trainings can be joined by a straight line as they are.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch import nn

import fiberscope as fs

WIDTHS = (16, 48, 48, 4)


def clusters(points: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Eight clusters in four classes."""
    rng = np.random.default_rng(seed)
    centres = np.random.default_rng(0).normal(size=(8, WIDTHS[0]))
    label = rng.integers(0, 8, points)
    return (centres[label] + 0.7 * rng.normal(size=(points, WIDTHS[0]))).astype(np.float32), label % 4


def trained(net: nn.Module, seed: int) -> nn.Module:
    X, y = map(torch.as_tensor, clusters(1500, 1))
    optimizer = torch.optim.AdamW(net.parameters(), lr=3e-3, weight_decay=0.01)
    source = torch.Generator().manual_seed(seed)
    for _ in range(25):
        for part in torch.randperm(len(X), generator=source).split(64):
            optimizer.zero_grad()
            nn.functional.cross_entropy(net(X[part]), y[part]).backward()
            optimizer.step()
    return net.eval()


def main() -> None:
    data = clusters(1500, 1)
    found: dict[str, fs.Barrier] = {}
    for name, sigma in (("plain", None), ("fixed zeros", 0.0), ("large fixed weights", 2.0)):
        pair = []
        for seed in (0, 1):
            net = fs.mlp(WIDTHS, seed)
            if sigma is not None:
                net = fs.break_symmetry(net, "w", architecture_seed=0, fixed=(4, 12, 12), sigma=sigma)
            pair.append(trained(net, seed))
        matching = fs.match(*pair, data=data)
        found[name] = fs.barrier(*pair, "cross_entropy", data, points=21, test=clusters(1000, 2))
        print(f"{name}: {found[name]}")
        print(f"  matched neurons correlate by {matching.objective:.2f}, the same places by {matching.identity:.2f}")
    moments = fs.record_inputs(pair[0], None, data)
    print({layer: f"{m.size} inputs, E|x|^2 = {np.trace(m.second_moment):.1f}" for layer, m in moments.items()})
    fs.plot.save_figure(fs.plot.barrier(found), Path("break_symmetry.png"))


if __name__ == "__main__":
    main()
