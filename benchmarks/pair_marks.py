"""Five pairs of MLPs on digits: the barrier of the loss as trained and after matching by weights.

``python benchmarks/pair_marks.py`` trains ten networks (64-256-256-10, ReLU) for ten epochs and prints a line for every
pair. The mark: pairs whose barrier is .1 at least keep a tenth of it at most.
"""

from __future__ import annotations

import time

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn

from fiberscope.connectivity.barrier import barrier
from fiberscope.connectivity.matching import match
from fiberscope.modules.models import mlp

PAIRS, EPOCHS = 5, 10


def trained(seed: int, x: Tensor, y: Tensor) -> nn.Module:
    net = mlp((64, 256, 256, 10), seed, activation=nn.ReLU, norm="none")
    rule = torch.optim.AdamW(net.parameters(), lr=3e-3, weight_decay=1e-4)
    source = torch.Generator().manual_seed(seed)
    for _ in range(EPOCHS):
        for part in torch.randperm(len(x), generator=source).split(64):
            rule.zero_grad()
            nn.functional.cross_entropy(net(x[part]), y[part]).backward()
            rule.step()
    return net.eval()


def main() -> None:
    torch.set_num_threads(1)
    held = load_digits()
    x, y = torch.tensor(held.data / 16, dtype=torch.float32), torch.tensor(held.target)
    reached = 0
    for pair in range(PAIRS):
        a, b = (trained(2 * pair + k, x[:1200], y[:1200]) for k in range(2))
        begin = time.process_time()
        found = match(a, b, method="weights")
        spent = time.process_time() - begin
        ways = [
            barrier(a, other, "cross_entropy", (x[:1200], y[:1200]), test=(x[1200:], y[1200:]))
            for other in (b, found.apply(b))
        ]
        before, after = (way.barrier for way in ways)
        tests = [way.test.barrier for way in ways if way.test is not None]
        reached += before >= 0.1 and after <= before / 10
        print(
            f"pair {pair}: {before:.3f} -> {after:.4f} ({after / before:.1%}), "
            f"held out {tests[0]:.3f} -> {tests[1]:.4f}, matched in {spent:.2f} s",
            flush=True,
        )
    print(f"{reached} of {PAIRS} reach the mark")


if __name__ == "__main__":
    main()
