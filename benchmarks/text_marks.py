"""Two small GPT-2 on the characters of the project's own pages: barriers as trained and after each alignment.

``python benchmarks/text_marks.py --folder DIR`` trains the pair (kept in the folder, and not trained again) and prints
the barrier of the loss per character, on windows of the training text and of text that was held out. Embeddings are
not tied: behind a norm with weights a tied stream has no rotations. It needs ``transformers``.
"""

from __future__ import annotations

import argparse
import time
from hashlib import sha256
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from fiberscope.connectivity.barrier import barrier
from fiberscope.connectivity.matching import match
from fiberscope.connectivity.structure import permutation_structure

PAGES = Path(__file__).resolve().parents[1] / "docs"
WINDOW, BATCH = 32, 32
SIGNS = "abcdefghijklmnopqrstuvwxyz0123456789 \n.,:;()`_-="
"""All others are one sign."""

PATHS: dict[str, dict[str, Any]] = {
    "permutations by weights": {"method": "weights"},
    "permutations learned": {"method": "learned"},
    "Procrustes": {"method": "weights", "group": "orthogonal"},
    "learned orthogonal": {"method": "learned", "group": "orthogonal"},
}


def windows() -> tuple[Tensor, Tensor, int]:
    """Windows of characters to train on and the last tenth, held out; capital letters and rare signs are folded."""
    text = "\n".join(page.read_text(encoding="utf-8") for page in sorted(PAGES.rglob("*.md"))).lower()
    number = {sign: k + 1 for k, sign in enumerate(SIGNS)}
    codes = torch.tensor([number.get(sign, 0) for sign in text])
    codes = codes[: len(codes) // WINDOW * WINDOW].reshape(-1, WINDOW)
    cut = len(codes) * 9 // 10
    return codes[:cut], codes[cut:], len(SIGNS) + 1


def trained(seed: int, data: Tensor, signs: int, size: int, steps: int, folder: Path) -> nn.Module:
    import transformers

    config = transformers.GPT2Config(
        vocab_size=signs,
        n_embd=size,
        n_head=4,
        n_layer=2,
        n_positions=WINDOW,
        tie_word_embeddings=False,
        bos_token_id=0,
        eos_token_id=0,
    )
    for name in ("resid_pdrop", "embd_pdrop", "attn_pdrop"):
        setattr(config, name, 0.0)
    torch.manual_seed(seed)
    net = transformers.GPT2LMHeadModel(config)
    text = sha256(data.numpy().tobytes()).hexdigest()[:8]  # pages change, and with them what was learned
    file = folder / f"gpt2-{seed}-{size}-{steps}-{text}.pt"
    if file.is_file():
        net.load_state_dict(torch.load(file, weights_only=True))
        return net.eval()
    rule = torch.optim.AdamW(net.parameters(), lr=3e-3, weight_decay=0.01)
    rate = torch.optim.lr_scheduler.OneCycleLR(rule, 3e-3, total_steps=steps)
    source = torch.Generator().manual_seed(seed)
    for step in range(steps):
        batch = data[torch.randint(len(data), (BATCH,), generator=source)]
        rule.zero_grad()
        loss = net(input_ids=batch, labels=batch).loss
        loss.backward()
        rule.step()
        rate.step()
        if (step + 1) % 100 == 0:
            print(f"  seed {seed}, step {step + 1}: {loss.item():.3f}, {time.process_time():.0f} s of CPU", flush=True)
    torch.save(net.state_dict(), file)
    return net.eval()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--size", type=int, default=64)
    parser.add_argument("--steps", type=int, default=800)
    parser.add_argument("--learning", type=int, default=400, help="steps of the learned alignments")
    options = parser.parse_args()
    torch.set_num_threads(1)
    train, held, signs = windows()
    a, b = (trained(seed, train, signs, options.size, options.steps, options.folder) for seed in (0, 1))
    shown = train[torch.randperm(len(train), generator=torch.Generator().manual_seed(9))[:1024]]
    data, test = ({"input_ids": shown}, shown), ({"input_ids": held[:256]}, held[:256])
    few = ({"input_ids": shown[:256]}, shown[:256])
    structure = permutation_structure(a, {"input_ids": shown[:2]})

    def told(name: str, left: nn.Module, right: nn.Module, begin: float) -> None:
        found = barrier(left, right, "next_token", few, 5, test=test)
        assert found.test is not None
        ends = f"ends {float(found.curve[[0, -1]].mean()):.3f}"
        seconds = time.process_time() - begin
        text = f"barrier {found.barrier:.3f}, held out {found.test.barrier:.3f}"
        print(f"{name:26} {text}, {ends}, {seconds:.0f} s of CPU", flush=True)

    told("as trained", a, b, time.process_time())
    for name, question in PATHS.items():
        begin = time.process_time()
        found = match(
            a, b, structure, data=data, loss="next_token", steps=options.learning, batch_size=BATCH, **question
        )
        told(name, found.reference(a), found.apply(b), begin)


if __name__ == "__main__":
    main()
