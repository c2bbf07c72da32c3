"""Folders with shards: aligned, moved there and back, merged, interrupted; and folders that are not what they seem."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

import fiberscope as fs
from fiberscope.connectivity.checkpoints.configs import narrowed, plan_of
from fiberscope.connectivity.selfcheck import draw
from fiberscope.errors import FiberscopeError, InputError, OutOfTimeError
from fiberscope.network.formats.stored.shards import INDEX, Shards

transformers = pytest.importorskip("transformers")
logging.disable(logging.WARNING)

SIZES = {"vocab_size": 50, "bos_token_id": 0, "eos_token_id": 1}
LLAMA = {
    "hidden_size": 24,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "intermediate_size": 40,
    "num_hidden_layers": 3,
    **SIZES,
}


def llama(seed: int, **options: Any) -> Any:
    torch.manual_seed(seed)
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**LLAMA, **options))
    draw(model, seed)
    return model.to(torch.bfloat16)


def saved(model: Any, folder: Path, shards: bool = True) -> Path:
    model.save_pretrained(folder, max_shard_size="20KB" if shards else "5GB")
    (folder / "tokenizer.json").write_text("{}")
    return folder


def tensors(folder: Path) -> dict[str, torch.Tensor]:
    shards = Shards.open(folder)
    return {name: shards.read(name) for name in shards.files}


def planted(folder: Path, out: Path) -> Path:
    element = plan_of(folder).structure.random(3)
    return fs.apply_alignment(folder, element, out)


@pytest.mark.parametrize("tied", [False, True])
def test_a_planted_llama_comes_back_byte_by_byte(tmp_path: Path, tied: bool) -> None:
    a = saved(llama(0, tie_word_embeddings=tied), tmp_path / "a")
    assert len(list(a.glob("*.safetensors"))) >= 2
    b = planted(a, tmp_path / "b")
    before = {path.name: path.read_bytes() for path in b.iterdir()}
    found = fs.align_checkpoints(a, b, tmp_path / "c", verify=True)
    assert found.distances[0] > 1 and found.distances[1] == 0 and found.ok
    assert {path.name: path.read_bytes() for path in b.iterdir()} == before
    for name, value in tensors(a).items():
        assert torch.equal(value, tensors(tmp_path / "c")[name]) and value.dtype == torch.bfloat16
    model = transformers.LlamaForCausalLM.from_pretrained(tmp_path / "c")
    assert (model.lm_head.weight is model.model.embed_tokens.weight) == tied
    assert {path.name for path in (tmp_path / "c").iterdir()} == {
        "alignment.json",
        *(path.name for path in a.iterdir()),
    }
    assert not (tmp_path / "c.partial").exists()
    back = fs.apply_alignment(tmp_path / "c", tmp_path / "c" / "alignment.json", tmp_path / "d", inverse=True)
    assert all(torch.equal(value, tensors(back)[name]) for name, value in tensors(b).items())


def test_independent_trainings_come_closer_and_keep_their_functions(tmp_path: Path) -> None:
    a, b = (saved(llama(seed), tmp_path / name) for seed, name in enumerate("ab"))
    found = fs.align_checkpoints(a, b, tmp_path / "c", verify=True)
    assert found.distances[1] < found.distances[0] and found.ok
    left, right = (transformers.LlamaForCausalLM.from_pretrained(path) for path in (a, b))
    live = fs.match(left, right, method="weights", data={"input_ids": torch.randint(3, 50, (1, 6))})
    assert live.distances is not None
    assert found.distances[0] == pytest.approx(live.distances[0], rel=1e-4)
    assert found.distances[1] <= live.distances[1] * 1.01


def interrupt_writing(done: int, total: int | None, text: str) -> None:
    if text.startswith(("writing", "merge")) and done == 1:
        raise KeyboardInterrupt


def test_what_is_interrupted_goes_on(tmp_path: Path) -> None:
    a = saved(llama(0), tmp_path / "a")
    b = planted(a, tmp_path / "b")
    for calls in (2, 2, 3):
        left = iter(range(calls))

        def stop(done: int, total: int | None, text: str, left: Iterator[int] = left) -> None:
            if next(left, None) is None:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            fs.align_checkpoints(a, b, tmp_path / "c", progress=stop)
        assert not (tmp_path / "c").exists() and (tmp_path / "c.partial" / "progress.json").is_file()
    with pytest.raises(KeyboardInterrupt):  # while files are written
        fs.align_checkpoints(a, b, tmp_path / "c", progress=interrupt_writing)
    assert len(list((tmp_path / "c.partial").glob("*.safetensors"))) == 1
    done = json.loads((tmp_path / "c.partial" / "progress.json").read_text())["element"]
    assert done
    found = fs.align_checkpoints(a, b, tmp_path / "c")
    assert found.distances[1] == 0 and not (tmp_path / "c.partial").exists()
    for name, value in tensors(a).items():
        assert torch.equal(value, tensors(tmp_path / "c")[name])
    with pytest.raises(KeyboardInterrupt):
        fs.align_checkpoints(a, b, tmp_path / "f", progress=interrupt_writing)
    (tmp_path / "f.partial" / "progress.json").write_text('{"element": 3')  # as no run leaves it: it begins again
    assert fs.align_checkpoints(a, b, tmp_path / "f").distances[1] == 0
    (tmp_path / "e.partial").mkdir()
    (tmp_path / "e.partial" / "mine.txt").write_text("not to be lost")
    with pytest.raises(InputError, match="expected no such folder, or one of an interrupted run"):
        fs.align_checkpoints(a, b, tmp_path / "e")
    with pytest.raises(OutOfTimeError):
        fs.align_checkpoints(a, b, tmp_path / "d", time_limit=1e-9)


def test_another_question_does_not_go_on_with_the_files_of_an_interrupted_one(tmp_path: Path) -> None:
    """The files that stand already were made by the other element, or the other rule."""
    a, b = (saved(llama(seed), tmp_path / str(seed)) for seed in range(2))
    structure = plan_of(a).structure
    questions: list[tuple[Callable[..., Path], ...]] = [
        tuple(partial(fs.apply_alignment, a, structure.random(seed)) for seed in range(2)),
        tuple(partial(fs.merge_checkpoints, [a, b], weights=weights) for weights in (None, [3, 1])),
    ]
    for k, (first, second) in enumerate(questions):
        with pytest.raises(KeyboardInterrupt):
            first(out=tmp_path / f"d{k}", progress=interrupt_writing)
        assert list((tmp_path / f"d{k}.partial").glob("*.safetensors"))
        found, expected = (tensors(second(out=tmp_path / f"{name}{k}")) for name in "de")
        assert all(torch.equal(value, expected[name]) for name, value in found.items())


def test_merging_tensor_by_tensor(tmp_path: Path) -> None:
    models = [llama(seed) for seed in range(3)]
    folders = [saved(model, tmp_path / str(k)) for k, model in enumerate(models)]
    for method, options in (("weights", {"weights": [1, 3]}), ("slerp", {})):
        out = fs.merge_checkpoints(folders[:2], tmp_path / method, method, **options)
        expected = fs.merge(models[:2], method, align=None, **options)
        found = tensors(out)
        for name, value in expected.state_dict().items():
            assert torch.allclose(found[name].float(), value.float(), atol=1e-2), name
    out = fs.merge_checkpoints(folders[1:], tmp_path / "ties", "ties", base=folders[0])
    expected = fs.merge(models[1:], "ties", base=models[0])
    assert torch.equal(tensors(out)["model.norm.weight"], expected.state_dict()["model.norm.weight"])
    with pytest.raises(InputError, match="base: expected the checkpoint"):
        fs.merge_checkpoints(folders, tmp_path / "x", "ties")
    with pytest.raises(InputError, match="folders: expected two"):
        fs.merge_checkpoints(folders[:1], tmp_path / "x")


def test_the_structure_is_the_one_of_the_live_model(tmp_path: Path) -> None:
    config = transformers.GPT2Config(n_embd=24, n_head=6, n_positions=16, n_layer=3, **SIZES)
    model = transformers.GPT2LMHeadModel(config)
    folder = saved(model, tmp_path / "gpt2", shards=False)
    plan = plan_of(folder)
    live = fs.permutation_structure(model, {"input_ids": torch.randint(3, 50, (1, 6))})
    assert set(plan.structure.groups) == set(live.only("permutation").groups)
    assert plan.aliases["lm_head.weight"] == plan.aliases["transformer.wte.weight"] == "transformer.wte.weight"


@pytest.mark.parametrize("kind", ["ViTForImageClassification", "GPTNeoXForCausalLM"])
def test_names_that_are_others_in_files(kind: str, tmp_path: Path) -> None:
    """What transformers renames when it saves a model is found under both names."""
    sizes = {"hidden_size": 24, "num_attention_heads": 6, "intermediate_size": 32, "num_hidden_layers": 2}
    sizes |= {"image_size": 16, "patch_size": 4} if kind.startswith("ViT") else SIZES
    model = getattr(transformers, kind)(getattr(transformers, kind.split("For", maxsplit=1)[0] + "Config")(**sizes))
    draw(model, 0)
    folder = saved(model.eval(), tmp_path / "a", shards=False)
    assert set(Shards.open(folder).files) != set(model.state_dict())
    found = fs.align_checkpoints(folder, planted(folder, tmp_path / "b"), tmp_path / "c", verify=True)
    assert found.ok and found.distances[1] == 0 < found.distances[0]
    assert all(torch.equal(value, tensors(tmp_path / "c")[name]) for name, value in tensors(folder).items())


def test_the_name_of_the_body_may_be_missing(tmp_path: Path) -> None:
    """The first GPT-2 checkpoints lack it."""
    model = transformers.GPT2LMHeadModel(transformers.GPT2Config(n_embd=16, n_head=2, n_layer=2, **SIZES))
    draw(model, 0)
    folder = saved(model.eval(), tmp_path / "a", shards=False)
    bare = {name.removeprefix("transformer."): value for name, value in tensors(folder).items()}
    save_file(bare, folder / "model.safetensors", {"format": "pt"})
    assert "h.0.ln_1.weight" in bare
    found = fs.align_checkpoints(folder, planted(folder, tmp_path / "b"), tmp_path / "c", verify=True)
    assert found.ok and found.distances[1] == 0 < found.distances[0]


def test_narrowed_configurations_keep_queries_per_key() -> None:
    config = transformers.LlamaConfig()  # the 7B model
    config.num_key_value_heads = 8
    small = narrowed(config)
    assert small.num_attention_heads // small.num_key_value_heads == 4
    assert small.hidden_size == 8 * small.num_attention_heads and small.num_hidden_layers == 2
    assert config.hidden_size == 4096


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"hidden_act": "nonsense"}, r"LlamaForCausalLM cannot be made from its config\.json \(KeyError: 'nonsense'\)"),
        ({"num_attention_heads": 0}, r"(cannot be made|is no configuration).*\(ZeroDivisionError: "),
        ({"num_attention_heads": 5}, "(cannot be made|is no configuration|does not run without numbers|fails)"),
        ({"architectures": ["GPT2LMHeadModel"]}, r"GPT2LMHeadModel cannot be made .*\(AttributeError: "),
        (
            {"architectures": ["AutoConfig"]},
            r"expected the name of an architecture in config\.json, got \['AutoConfig'\]",
        ),
        ({"architectures": ["logging"]}, r"expected the name of an architecture in config\.json, got \['logging'\]"),
    ],
)
def test_a_class_that_makes_no_model_from_its_configuration(
    tmp_path: Path, changed: dict[str, Any], message: str
) -> None:
    """The factory of a checkpoint is the class that its configuration names; whatever it raises is one line."""
    described = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", **LLAMA, **changed}
    (tmp_path / "config.json").write_text(json.dumps(described))
    with pytest.raises(FiberscopeError, match=message) as caught:
        plan_of(tmp_path)
    assert "\n" not in str(caught.value)


def test_bad_folders(tmp_path: Path) -> None:
    a = saved(llama(0), tmp_path / "a")
    other = transformers.LlamaForCausalLM(transformers.LlamaConfig(**{**LLAMA, "intermediate_size": 30}))
    b = saved(other.to(torch.bfloat16), tmp_path / "b")
    out = tmp_path / "out"
    cases: list[tuple[str, Any]] = [
        (r"tensor model\.layers\.0\.mlp\.down_proj\.weight: expected equal shapes", b),
        ("expected a folder with .safetensors files, found none", tmp_path / "nowhere"),
    ]
    copies: dict[str, Path] = {}
    for name in ("missing", "cut", "hostile", "escape", "nan", "config", "index"):
        copies[name] = saved(llama(0), tmp_path / name)
    first = sorted(copies["missing"].glob("*.safetensors"))[0].name
    (copies["missing"] / first).unlink()
    cases.append((f"the file {first}, which its index names, is missing", copies["missing"]))
    whole = (copies["cut"] / first).read_bytes()
    (copies["cut"] / first).write_bytes(whole[: len(whole) // 2])
    cases.append(("got something else or a damaged file", copies["cut"]))
    (copies["hostile"] / first).write_bytes((1 << 62).to_bytes(8, "little") + b"{}")
    cases.append(("got something else or a damaged file", copies["hostile"]))
    index = json.loads((copies["escape"] / INDEX).read_text())
    index["weight_map"]["model.norm.weight"] = "../a/" + first
    (copies["escape"] / INDEX).write_text(json.dumps(index))
    cases.append(("expected names of .safetensors files beside it", copies["escape"]))
    (copies["index"] / INDEX).write_text("[1]")
    cases.append(("expected an index of tensors in JSON", copies["index"]))
    for message, folder in cases:
        with pytest.raises(FiberscopeError, match=message) as caught:
            fs.align_checkpoints(a, folder, out)
        assert "\n" not in str(caught.value)
        assert not out.exists() and not (tmp_path / "out.partial").exists()
    (copies["config"] / "config.json").write_text('{"model_type": "unheard-of"}')
    with pytest.raises(InputError, match=r"its config\.json is no configuration"):
        fs.align_checkpoints(a, copies["config"], out)
    broken = llama(0)
    with torch.no_grad():
        broken.model.norm.weight[3] = torch.nan
    nan = saved(broken, tmp_path / "nan2")
    with pytest.raises(InputError, match=r"expected finite weights, got NaN or infinity in model\.norm\.weight"):
        fs.align_checkpoints(a, nan, out)
    with pytest.raises(InputError, match=r"expected finite weights, got NaN or infinity in model\.norm\.weight"):
        fs.merge_checkpoints([a, nan], out)
    assert not out.exists() and not (tmp_path / "out.partial").exists()
    with pytest.raises(InputError, match="expected a folder that does not exist yet"):
        fs.align_checkpoints(a, a, b)
    with pytest.raises(InputError, match=r"none\.json: expected a file that align wrote, found none"):
        fs.apply_alignment(a, tmp_path / "none.json", out)
    (tmp_path / "e.json").write_text('{"element": {"model.layers.9": {"permutations": [[1, 0]]}}}')
    with pytest.raises(InputError, match=r"element: no group 'model\.layers\.9'"):
        fs.apply_alignment(a, tmp_path / "e.json", out)
