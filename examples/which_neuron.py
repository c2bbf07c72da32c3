"""Which neuron is which? Swap costs in one training, and matched neurons of two, for growing fixed weights.

Run: python examples/which_neuron.py
"""

import numpy as np
import torch
from matplotlib.figure import Figure
from torch import nn

import fiberscope as fs

SIGMAS = (0.0, 0.3, 1.0, 3.0)
data = fs.load_dataset("gaussian_mixture", intrinsic=8, dimension=32, points=600, test_points=1)
X, Y = torch.tensor(np.array(data.inputs), dtype=torch.float32), torch.tensor(np.array(data.targets))


def trained(sigma: float, seed: int) -> nn.Module:
    """An MLP with an eighth of its weights fixed at random values of size sigma, the same for every seed."""
    net = fs.w_mlp((32, 32, 32, 5), seed, architecture_seed=0, sigma=sigma)
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.003)
    for _ in range(150):
        optimizer.zero_grad()
        nn.functional.cross_entropy(net(X), Y).backward()
        optimizer.step()
    return net


pairs = {sigma: (trained(sigma, 0), trained(sigma, 1)) for sigma in SIGMAS}
matchings = {f"sigma {sigma:g}": fs.match(a, b, data=X) for sigma, (a, b) in pairs.items()}
print("sigma   identity  optimal   middle loses")
for sigma, found in zip(SIGMAS, matchings.values(), strict=True):
    along = fs.barrier(*pairs[sigma], "cross_entropy", (X, Y), points=3)
    print(f"{sigma:5.1f} {found.identity:10.3f} {found.objective:8.3f} {100 * along.accuracy.midpoint:9.1f} points")

with fs.plot.house_style():
    figure = Figure(figsize=(8.6, 7.2), layout="constrained")
    panels = figure.subplot_mosaic([["none", "fixed"], ["match", "match"]], height_ratios=[3, 2])
    for name, sigma in (("none", 0.0), ("fixed", 1.0)):
        fs.plot.swap_costs(fs.neuron_classes(pairs[sigma][0].linear0, X, name="linear0"), ax=panels[name])
        panels[name].set_title(f"fixed weights of size {sigma:g}")
    fs.plot.matching_objectives(matchings, ax=panels["match"])
    panels["match"].set_title("correlation of two runs as they are, of that in the best order")
fs.plot.save_figure(panels["match"], "which_neuron.png", dpi=120)
print("wrote which_neuron.png")
