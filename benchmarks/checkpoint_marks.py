"""Peak memory of aligning two checkpoints of the shape of a 7B model, tensor by tensor: it does not grow with depth.

``python benchmarks/checkpoint_marks.py --layers 2 --folder DIR`` writes two folders of random bfloat16 shards (half a
GB and .4 GB for every layer, each), aligns them in a process of its own, prints what that took, and deletes all of it.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import resource
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

from fiberscope.connectivity.checkpoints.align import align_checkpoints
from fiberscope.network.formats.stored.shards import write_shard

SHAPE = {"hidden_size": 4096, "intermediate_size": 11008, "num_attention_heads": 32, "num_key_value_heads": 32}
"""Of Llama 2 7B, which has 32 layers."""

WORDS = 32000


def tensors_of(layer: int) -> dict[str, tuple[int, ...]]:
    d, h = SHAPE["hidden_size"], SHAPE["intermediate_size"]
    parts: dict[str, tuple[int, ...]] = {f"self_attn.{name}_proj.weight": (d, d) for name in "qkvo"}
    parts |= {"mlp.gate_proj.weight": (h, d), "mlp.up_proj.weight": (h, d), "mlp.down_proj.weight": (d, h)}
    parts |= {"input_layernorm.weight": (d,), "post_attention_layernorm.weight": (d,)}
    return {f"model.layers.{layer}.{name}": shape for name, shape in parts.items()}


def write_random(folder: Path, layers: int, seed: int) -> None:
    """A checkpoint as transformers write it, one shard for every layer and one for the rest."""
    folder.mkdir()
    d = SHAPE["hidden_size"]
    ends: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (WORDS, d), "model.norm.weight": (d,)}
    ends |= {"lm_head.weight": (WORDS, d)}
    shards = [ends, *(tensors_of(k) for k in range(layers))]
    source = torch.Generator().manual_seed(seed)
    where = {}
    for number, shapes in enumerate(shards, start=1):
        file = f"model-{number:05d}-of-{len(shards):05d}.safetensors"
        made = {name: (torch.randn(s, generator=source) / 64).to(torch.bfloat16) for name, s in shapes.items()}
        write_shard(folder / file, made, {"format": "pt"})
        where |= dict.fromkeys(shapes, file)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": where}))
    config = {**SHAPE, "architectures": ["LlamaForCausalLM"], "model_type": "llama", "num_hidden_layers": layers}
    config |= {"vocab_size": WORDS, "tie_word_embeddings": False, "dtype": "bfloat16", "max_position_embeddings": 2048}
    (folder / "config.json").write_text(json.dumps(config))


def aligned(folder: Path, rounds: int, seconds: float, answers: Any) -> None:
    """In a process of its own: what the alignment took."""
    torch.set_num_threads(1)
    told = time.perf_counter()

    def progress(done: int, total: int | None, text: str) -> None:
        nonlocal told
        if time.perf_counter() - told > 10:
            told = time.perf_counter()
            print(f"  {done}/{total} {text}", flush=True)

    found = align_checkpoints(
        folder / "a", folder / "b", folder / "c", rounds=rounds, progress=progress, time_limit=seconds
    )
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    answers.put((found.distances, found.seconds, time.process_time(), peak))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=0, help="rounds after the first one")
    parser.add_argument("--seconds", type=float, default=7200, help="deadline")
    parser.add_argument("--folder", type=Path, default=None, help="where the shards are written for a while")
    options = parser.parse_args()
    top = Path(tempfile.mkdtemp(prefix="checkpoints-", dir=options.folder))
    try:
        for seed, name in enumerate("ab"):
            write_random(top / name, options.layers, seed)
        size = sum(file.stat().st_size for file in top.rglob("*.safetensors")) / 2**30
        print(f"{options.layers} layers, {size:.1f} GB in two folders", flush=True)
        begun = multiprocessing.get_context("spawn")
        answers = begun.Queue()
        work = begun.Process(target=aligned, args=(top, options.rounds, options.seconds, answers))
        work.start()
        work.join()
        if work.exitcode:
            raise SystemExit(f"the alignment ended with {work.exitcode}")
        (before, after), wall, cpu, peak = answers.get()
        print(f"distance {before:.2f} -> {after:.2f}, {wall:.0f} s, {cpu:.0f} s of CPU, peak {peak:.2f} GB")
    finally:
        shutil.rmtree(top)


if __name__ == "__main__":
    main()
