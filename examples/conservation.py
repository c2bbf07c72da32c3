"""What does gradient descent conserve? One number per neuron, a matrix for active neurons, as the step goes to zero.

A small network is trained over a fixed time with smaller and smaller steps. What the flow conserves drifts by an amount
that halves with the step; entries of the same matrix that belong to no block of active neurons move all the same.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

import fiberscope as fs


def main() -> None:
    rng = np.random.default_rng(2)
    X = rng.uniform(-1, 1, (40, 2))
    Y = np.sin(3 * X[:, :1]) * X[:, 1:]
    net = fs.Network.random((2, 6, 1), rng)
    bias = net.biases[0].copy()
    bias[:3] = 2.5  # three neurons that are active on all inputs
    net = fs.Network([0.6 * net.weights[0], 0.6 * net.weights[1]], [bias, [-1.0]])
    found = fs.conserved_quantities(net, X)
    print(found, "in blocks:", found.blocks)

    drifts = {}
    for step in 0.02 / 2.0 ** np.arange(5):
        epochs = round(1 / step)
        moments = [round(epochs * k / 10) for k in range(11)]
        runs = fs.train_many(
            net.widths, (X, Y), [0], epochs=epochs, optimizer="sgd", lr=float(step), init=[net], checkpoints=moments
        )
        trajectory = [kept[0] for kept in runs.checkpoints.values() if kept[0] is not None]
        drifts[float(step)] = fs.conservation_drift(trajectory, X)
        print(f"step {step:.5f}: {drifts[float(step)]!r}")

    with fs.plot.house_style():
        figure = Figure(figsize=(5, 4), layout="constrained")
        ax = figure.subplots()
        for name, label in [
            ("neurons", "neurons"),
            ("off_diagonal", "active block, off the diagonal"),
            ("others", "other entries"),
        ]:
            values = {step: getattr(drift, name) for step, drift in drifts.items()}
            order = fs.drift_order(values)
            print(f"{label}: the drift goes with the power {order.local[-1]:.3f} of the step")
            ax.loglog(list(values), list(values.values()), "o-", label=f"{label}, slope {order.slope:.2f}")
        ax.set(xlabel="step size", ylabel="largest change")
        ax.legend()
    fs.plot.save_figure(ax, Path("conservation.png"))

    hiding = fs.Network([np.eye(2), [[1.0, -0.5]], [[1.0]]], [[0.0, 0.1], [-0.25], [0.0]])
    print("moving a hidden hyperplane is a symmetry (along = 0), but no gradient (curl > 0):")
    print("   ", fs.translation_obstruction(hiding, 0, rng.uniform(0, 2, (50, 2))))


if __name__ == "__main__":
    main()
