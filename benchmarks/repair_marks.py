"""Two ResNet20 with batch norm on a part of CIFAR-10: the loss half-way, as trained and aligned, then after repair.

``python benchmarks/repair_marks.py --folder DIR`` trains the pair (every epoch is kept in the folder, and a run that is
stopped goes on from there) and prints the losses. Images are averaged to ``--side`` pixels. The data set comes from the
folder ``FIBERSCOPE_SHARED``, as in the tests.
"""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from fiberscope.connectivity.matching import match
from fiberscope.connectivity.paths import interpolate
from fiberscope.connectivity.repair import repair
from fiberscope.connectivity.structure import permutation_structure
from fiberscope.modules.models import resnet20

Data = tuple[Tensor, Tensor]


def normed(width: int, seed: int) -> nn.Module:
    """ResNet20 with batch norms in the place of its group norms."""
    net = resnet20(width, seed)
    for name, part in list(net.named_modules()):
        if isinstance(part, nn.GroupNorm):
            parent, _, own = name.rpartition(".")
            setattr(net.get_submodule(parent), own, nn.BatchNorm2d(part.num_channels))
    return net


def images(side: int, count: int) -> tuple[Data, Data]:
    """The first training images and all test images of the subset, every colour with mean 0 and variance 1."""
    held = np.load(Path(os.environ["FIBERSCOPE_SHARED"]) / "data" / "cifar10-subset.npz")
    found = []
    for part in ("train", "test"):
        x = torch.from_numpy(held[f"x_{part}"]).float()
        x = x.permute(0, 3, 1, 2) if x.shape[-1] == 3 else x.reshape(-1, 3, 32, 32)
        x = nn.functional.adaptive_avg_pool2d(x, side)
        found.append((x, torch.from_numpy(held[f"y_{part}"].astype(np.int64)).flatten()))
    (x, y), (test, labels) = found
    mean, spread = x.mean((0, 2, 3), keepdim=True), x.std((0, 2, 3), keepdim=True)
    return (((x - mean) / spread)[:count], y[:count]), ((test - mean) / spread, labels)


def trained(width: int, seed: int, data: Data, epochs: int, folder: Path) -> nn.Module:
    """AdamW with one rise and fall of the step, batches of 100, images mirrored at random."""
    net, (x, y) = normed(width, seed), data
    rule = torch.optim.AdamW(net.parameters(), lr=5e-3, weight_decay=5e-4)
    steps = len(x) // 100
    rate = torch.optim.lr_scheduler.OneCycleLR(rule, 5e-3, total_steps=epochs * steps)
    file, begin = folder / f"net-{width}-{seed}-{x.shape[-1]}-{len(x)}-{epochs}.pt", 0
    if file.is_file():
        held = torch.load(file, weights_only=True)
        begin = held["epoch"]
        for part, state in zip((net, rule, rate), held["states"], strict=True):
            part.load_state_dict(state)
    for epoch in range(begin, epochs):
        source = torch.Generator().manual_seed(1000 * seed + epoch)
        order, lost = torch.randperm(len(x), generator=source), 0.0
        for rows in order[: steps * 100].split(100):
            mirrored = torch.rand(len(rows), generator=source) < 0.5
            batch = torch.where(mirrored[:, None, None, None], x[rows].flip(3), x[rows])
            rule.zero_grad()
            loss = nn.functional.cross_entropy(net(batch), y[rows])
            loss.backward()
            rule.step()
            rate.step()
            lost += loss.item() / steps
        states = [part.state_dict() for part in (net, rule, rate)]
        torch.save({"epoch": epoch + 1, "states": states}, file)
        print(f"  seed {seed}, epoch {epoch + 1}: {lost:.3f}, {time.process_time():.0f} s of CPU", flush=True)
    return net.eval()


def told(name: str, net: nn.Module, parts: dict[str, Data]) -> None:
    row = []
    with torch.no_grad():
        for part, (x, y) in parts.items():
            found = torch.cat([net.eval()(piece) for piece in x.split(250)])
            right = float((found.argmax(1) == y).float().mean())
            row.append(f"{part} {float(nn.functional.cross_entropy(found, y)):.3f} ({right:.3f} right)")
    print(f"{name:44}", ", ".join(row), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--width", type=int, default=2)
    parser.add_argument("--side", type=int, default=16)
    parser.add_argument("--images", type=int, default=1500)
    parser.add_argument("--epochs", type=int, default=16)
    options = parser.parse_args()
    torch.set_num_threads(1)
    train, test = images(options.side, options.images)
    a, b = (trained(options.width, seed, train, options.epochs, options.folder) for seed in (0, 1))
    parts = {"training": train, "test": test}
    told("first", a, parts)
    told("second", b, parts)
    structure = permutation_structure(a, train[0][:2])
    for path in ("as trained", "weights", "activations"):
        other = b if path == "as trained" else match(a, b, structure, path, train[0]).apply(b)
        middle = interpolate(a, other, 0.5)
        told(f"half-way, {path}", middle, parts)
        told(f"half-way, {path}, repaired", repair(middle, train[0], batch_size=250), parts)


if __name__ == "__main__":
    main()
