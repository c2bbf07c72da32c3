"""``fiberscope align``, ``apply``, ``barrier`` and ``merge`` on two-shard bf16 folders."""

from __future__ import annotations

import json
import logging

import numpy as np
import pytest
import torch

from fiberscope.connectivity.selfcheck import draw
from fiberscope.network.formats.stored.shards import Shards

transformers = pytest.importorskip("transformers")
logging.disable(logging.WARNING)


def saved(folder, seed):
    config = transformers.LlamaConfig(
        vocab_size=40,
        hidden_size=16,
        num_attention_heads=4,
        num_key_value_heads=2,
        intermediate_size=24,
        num_hidden_layers=2,
        bos_token_id=0,
        eos_token_id=1,
    )
    model = transformers.LlamaForCausalLM(config)
    draw(model, seed)
    model.to(torch.bfloat16).save_pretrained(folder, max_shard_size="10KB")
    return folder


def test_align_apply_merge_and_barrier(run, tmp_path):
    a, b, c, d = saved(tmp_path / "a", 0), saved(tmp_path / "b", 1), tmp_path / "c", tmp_path / "d"
    assert len(set(Shards.open(a).files.values())) >= 2
    done = run("align", a, b, "--out", c, "--verify", "--json")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["distances"][1] < told["distances"][0] and told["drift"] <= told["allowed"]
    transformers.LlamaForCausalLM.from_pretrained(c)

    done = run("apply", c, c / "alignment.json", "--inverse", "--out", d)
    assert done.returncode == 0, done.stderr
    left, right = Shards.open(b), Shards.open(d)
    assert all(torch.equal(left.read(name), right.read(name)) for name in left.files)

    done = run("merge", a, c, "--out", tmp_path / "m", "--weights", "1,1")
    assert done.returncode == 0, done.stderr
    merged = Shards.open(tmp_path / "m").read("model.norm.weight").float()
    mean = sum(Shards.open(one).read("model.norm.weight").float() for one in (a, c)) / 2
    assert torch.allclose(merged, mean, atol=1e-2)

    np.save(tmp_path / "tokens.npy", np.random.default_rng(0).integers(3, 40, (4, 8)))
    done = run("barrier", a, c, "--data", tmp_path / "tokens.npy", "--points", 3, "--json")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert len(told["t"]) == 3 and min(told["perplexity"]["values"][0]) > 1


def test_bad_questions(run, tmp_path):
    a = saved(tmp_path / "a", 0)
    for arguments, message in (
        (("align", a, tmp_path / "no", "--out", tmp_path / "c"), "expected a folder with .safetensors files"),
        (("align", a, a, "--out", a), "expected a folder that does not exist yet"),
        (("merge", a, a, "--out", tmp_path / "c", "--weights", "1,x"), "--weights: expected numbers"),
        (("apply", a, a / "config.json", "--out", tmp_path / "c"), "group "),
    ):
        done = run(*arguments)
        assert done.returncode == 2, done.stdout
        assert message in done.stderr.replace("\n", " ")
        assert not (tmp_path / "c").exists()
