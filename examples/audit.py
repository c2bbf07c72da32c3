"""Five copies of one CNN, five answers: exported, folded, pruned, quantised, and what each change means.

``python audit.py FOLDER`` keeps the models, for the commands of ``docs/equality.md``. It needs torch, whose new
exporter needs onnxscript: ``pip install "fiberscope[torch]" onnxscript``.
"""

import logging
import sys
import tempfile
import warnings
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.nn.utils.fusion import fuse_conv_bn_eval

import fiberscope as fs

try:
    import onnxscript  # noqa: F401  torch asks for it, and does not bring it
except ImportError:
    sys.exit("the new exporter of torch needs onnxscript: pip install onnxscript")
logging.getLogger("torch.onnx").setLevel(logging.ERROR)  # it would tell of every library that is not installed
torch.set_num_threads(1)  # the same numbers on every machine, or almost
torch.manual_seed(0)
rng = np.random.default_rng(0)
labels = rng.integers(0, 3, 240)
images = rng.normal(0, 0.3, (240, 1, 8, 8)).astype(np.float32)
for k, label in enumerate(labels):  # a bright stripe: across, down, along the diagonal
    images[k, 0, 3, :] += label == 0
    images[k, 0, :, 4] += label == 1
    images[k, 0] += np.eye(8, dtype=np.float32) * (label == 2)


def trained() -> nn.Sequential:
    """A small CNN with batch normalisation."""
    model = nn.Sequential(
        nn.Conv2d(1, 6, 3, padding=1), nn.BatchNorm2d(6), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(6, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 16, 3),
    )  # fmt: skip
    optimizer = torch.optim.Adam(model.parameters(), 0.01)
    for _ in range(60):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(torch.tensor(images)), torch.tensor(labels)).backward()
        optimizer.step()
    return model.eval()


def copies(model: nn.Sequential, folder: Path) -> None:
    """What people make of a model."""
    np.save(folder / "images.npy", images)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, dynamo in (("model.onnx", True), ("legacy.onnx", False)):  # the second folds batch normalisation
            torch.onnx.export(model, (torch.zeros(1, 1, 8, 8),), str(folder / name), dynamo=dynamo, verbose=False)
    layers = list(model)
    first, second = (fuse_conv_bn_eval(layers[k], layers[k + 1]) for k in (0, 4))
    fs.save(fs.load(nn.Sequential(first, *layers[2:4], second, *layers[6:]).eval(), (1, 8, 8)), folder / "folded.onnx")
    with torch.no_grad():
        weight = layers[8].weight.clone()
        layers[8].weight[weight.abs() < 0.01] = 0.0
        fs.save(fs.load(model, (1, 8, 8)), folder / "pruned.onnx")
        layers[8].weight.copy_(weight)
        for parameter in model.parameters():  # int8 with one step for every tensor
            step = parameter.abs().max() / 127
            parameter.copy_((parameter / step).round() * step)
        fs.save(fs.load(model, (1, 8, 8)), folder / "quantised.onnx")


with tempfile.TemporaryDirectory() as temporary:
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else temporary)
    folder.mkdir(parents=True, exist_ok=True)
    copies(trained(), folder)
    box = fs.Box.cube(64, 0.0, 1.0)
    for name, question in (
        ("legacy.onnx", {}),
        ("folded.onnx", {}),
        ("pruned.onnx", {"domain": box}),
        ("pruned.onnx", {"domain": box, "tolerance": 0.5}),
        ("quantised.onnx", {"domain": box, "tolerance": 2.5}),
    ):
        found = fs.audit(folder / "model.onnx", folder / name, data=images, time_limit=5, **question)
        answer = {True: "equal", False: "different", None: "undecided"}[found.equal]
        print(f"{name:15} {answer} {found.verdict.kind}, by {found.verdict.method}; on the images: {found.data.text}")
