"""Merging: two networks that learned the digits from different seeds become one, after their neurons are aligned.

The mean of the two as they are has forgotten much. After the neurons of the second are put in the order of the first,
by weights alone, the mean knows almost all that they know; the picture shows loss and accuracy on the way.
"""

from __future__ import annotations

from pathlib import Path

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn

import fiberscope as fs


def digits() -> tuple[Tensor, Tensor]:
    found = load_digits()
    return torch.tensor(found.data / 16, dtype=torch.float32), torch.tensor(found.target)


def trained(seed: int, X: Tensor, y: Tensor) -> nn.Module:
    net = fs.mlp((64, 256, 256, 10), seed, activation=nn.ReLU, norm="none")
    optimizer = torch.optim.AdamW(net.parameters(), lr=3e-3, weight_decay=1e-4)
    source = torch.Generator().manual_seed(seed)
    for _ in range(10):
        for part in torch.randperm(len(X), generator=source).split(64):
            optimizer.zero_grad()
            nn.functional.cross_entropy(net(X[part]), y[part]).backward()
            optimizer.step()
    return net.eval()


def main() -> None:
    X, y = digits()
    data, held_out = (X[:1200], y[:1200]), (X[1200:], y[1200:])
    a, b = trained(0, *data), trained(1, *data)
    found = fs.match(a, b, method="weights")
    print(found)
    curves = {
        "as trained": fs.barrier(a, b, "cross_entropy", data, test=held_out),
        "aligned": fs.barrier(a, found.apply(b), "cross_entropy", data, test=held_out),
    }
    for name, curve in curves.items():
        print(f"{name}: {curve}")
    for align in (None, "weights"):
        merged = fs.merge([a, b], align=align)
        right = (merged(held_out[0]).argmax(dim=1) == held_out[1]).float().mean()
        print(f"merged, align={align!r}: {float(right):.1%} of new digits")
    fs.plot.save_figure(fs.plot.barrier(curves), Path("merging.png"))


if __name__ == "__main__":
    main()
