"""Watching operations costs no compiler, and a compiled part of a module is still seen."""

from __future__ import annotations

import subprocess
import sys

SCRIPT = """
import sys
import torch
from torch import nn
import fiberscope as fs

def names(module):
    found = fs.permutation_structure(module, torch.zeros(2, 4))
    return [(group.name.replace("_orig_mod.", ""), group.kind, group.size) for group in found.groups]

net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
plain = names(net)
assert plain == [("0", "permutation", 8), ("0*", "scaling", 1)], plain
assert "torch._dynamo" not in sys.modules
assert names(torch.compile(net, backend="eager")) == plain
assert "torch._dynamo" in sys.modules
assert names(net) == plain
"""


def test_compiler_stays_away_and_compiled_modules_are_seen():
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
