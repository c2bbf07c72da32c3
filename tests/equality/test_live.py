"""Modules that are not piecewise linear: one program with permuted parameters is one function, else undecided."""

from __future__ import annotations

import json
from contextlib import suppress
from copy import deepcopy

import pytest
import torch
from mutations import mutants
from torch import nn

import fiberscope as fs
from fiberscope.connectivity.structure import permutation_structure
from fiberscope.equality import checker


def encoder() -> tuple[nn.Module, object]:
    layer = nn.TransformerEncoderLayer(12, 3, 20, batch_first=True, activation="gelu")
    return nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).eval(), torch.randn(2, 5, 12)


def smooth() -> tuple[nn.Module, object]:
    parts = [nn.Linear(4, 9), nn.GELU(), nn.LayerNorm(9), nn.Linear(9, 7), nn.Tanh(), nn.Linear(7, 2)]
    return nn.Sequential(*parts).eval(), torch.randn(3, 4)


def hugging_face(name: str) -> tuple[nn.Module, object]:
    transformers = pytest.importorskip("transformers")
    ids = {"input_ids": torch.randint(0, 50, (2, 7))}
    if name == "gpt2":
        config = transformers.GPT2Config(n_layer=2, n_head=2, n_embd=16, vocab_size=50, n_positions=16)
        return transformers.GPT2LMHeadModel(config).eval(), ids
    if name == "bert":
        config = transformers.BertConfig(
            num_hidden_layers=2, num_attention_heads=2, hidden_size=16, intermediate_size=24, vocab_size=50
        )
        return transformers.BertForSequenceClassification(config).eval(), ids
    config = transformers.LlamaConfig(
        num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, hidden_size=16, intermediate_size=24,
        vocab_size=50,
    )  # fmt: skip
    return transformers.LlamaForCausalLM(config).eval(), ids


MODELS = {
    "encoder": encoder,
    "smooth": smooth,
    "gpt2": lambda: hugging_face("gpt2"),
    "bert": lambda: hugging_face("bert"),
    "llama": lambda: hugging_face("llama"),
}


def drawn(name: str) -> tuple[nn.Module, object]:
    torch.manual_seed(0)
    module, example = MODELS[name]()
    with torch.no_grad():
        for value in module.parameters():
            value.add_(0.1 * torch.randn(value.shape))
    return module, example


@pytest.mark.parametrize("name", MODELS)
def test_a_permuted_copy_is_the_same_function(name):
    module, example = drawn(name)
    structure = permutation_structure(module, example).only("permutation")
    assert structure.groups
    other = structure.apply(module, structure.random(1))
    verdict = fs.equivalent(module, other, example=example)
    assert verdict.equal is True and verdict.residual == 0 and verdict.precision == "float32", verdict.reason
    assert any(not part.is_identity for part in verdict.evidence.element.values())
    assert fs.equivalent(module, other, example=example, tolerance=0).exact
    assert fs.equivalent(module, deepcopy(module), example=example).equal is True
    assert "one program" in verdict.reason and verdict.to_dict()["witness"]["kind"] == "same module"

    half = deepcopy(other).half().float()
    assert fs.equivalent(module, half, example=example).equal is None
    stored = fs.equivalent(module, deepcopy(other).half(), example=example)
    assert stored.equal is True and stored.precision == "float16" and stored.residual > 0
    assert fs.equivalent(module, deepcopy(other).half(), example=example, tolerance=0).equal is None


@pytest.mark.parametrize("name", MODELS)
def test_other_functions_are_undecided(name):
    module, example = drawn(name)
    for k, (key, value) in enumerate(module.named_parameters()):
        if value.dim() < 2 or k % 3:
            continue
        other = deepcopy(module)
        weight = dict(other.named_parameters())[key]
        with torch.no_grad():
            weight[0] = weight[0].flip(0)
        verdict = fs.equivalent(module, other, example=example)
        assert verdict.equal is None and "differ" in verdict.reason, (key, verdict)


def test_settings_belong_to_the_program():
    x = torch.randn(2, 4)
    one = nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4), nn.GELU())
    for k, part in ((1, nn.LayerNorm(4, eps=1e-4)), (2, nn.GELU(approximate="tanh")), (2, nn.SiLU())):
        other = deepcopy(one)
        other[k] = part
        if k == 1:
            other[k].load_state_dict(one[k].state_dict())
        verdict = fs.equivalent(one, other, example=x)
        assert verdict.equal is None and "the programs differ" in verdict.reason
    other = deepcopy(one)
    with torch.no_grad():
        other[0].bias[1] = torch.nextafter(other[0].bias[1], torch.tensor(9.0))
    assert fs.equivalent(one, other, example=x, tolerance=0).equal is None
    assert fs.equivalent(one, other, example=x).equal is True


class Constant(nn.Module):
    def __init__(self, value: float, random: bool = False) -> None:
        super().__init__()
        self.value, self.random, self.layer = torch.full((3,), value), random, nn.Linear(3, 3)

    def forward(self, x):
        return torch.sin(self.layer(x)) + self.value + (torch.rand(3) if self.random else 0)


def test_constants_and_random_numbers():
    one, two, three = Constant(1.0), Constant(2.0), Constant(1.0, random=True)
    for other in (two, three):
        other.layer.load_state_dict(one.layer.state_dict())
    x = torch.randn(2, 3)
    assert fs.equivalent(one, deepcopy(one), example=x).equal is True
    assert fs.equivalent(one, two, example=x).equal is None
    drawn = fs.equivalent(three, deepcopy(three), example=x)
    assert drawn.equal is None and "random" in drawn.reason


def test_bad_input():
    net = nn.Sequential(nn.Linear(2, 2), nn.GELU())
    with pytest.raises(fs.UnsupportedModelError):
        fs.equivalent(net, net)
    with pytest.raises(fs.InputError, match="does not run"):
        fs.equivalent(net, net, example=torch.zeros(1, 5))
    wider = nn.Sequential(nn.Linear(2, 3), nn.GELU())
    verdict = fs.equivalent(net, wider, example=torch.zeros(1, 2))
    assert verdict.equal is None and "0.weight" in verdict.reason


def module_proof(tmp_path, **question):
    torch.manual_seed(0)
    module, example = nn.Sequential(nn.Linear(2, 3), nn.GELU(), nn.Linear(3, 1)).eval(), torch.randn(2, 2)
    other, order = deepcopy(module), [2, 0, 1]
    with torch.no_grad():
        other[0].weight.copy_(module[0].weight[order])
        other[0].bias.copy_(module[0].bias[order])
        other[2].weight.copy_(module[2].weight[:, order])
    verdict = fs.equivalent(module, other, example=example, **question)
    assert verdict.equal is True
    verdict.save(tmp_path / "proof.json")
    return module, other, example, json.loads((tmp_path / "proof.json").read_text())


def test_a_certificate_of_modules_is_checked_by_both(tmp_path):
    module, other, example, found = module_proof(tmp_path)
    path = tmp_path / "proof.json"
    replay = fs.verify(path, module, other, example)
    assert replay.ok and "recorded again" in replay.evidence and replay.models[0].compared is True
    alone = fs.verify(path)
    assert alone.ok and "trusted" in alone.evidence and alone.models[0].compared is None
    words, about, how = checker.check(found)
    assert "up to float32 rounding" in words and "in another order" in how and about[-1].startswith("trusted: both")
    assert checker.main([str(path)]) == 0
    with pytest.raises(fs.InputError, match="both modules and an example"):
        fs.verify(path, module, other)
    assert not fs.verify(path, other, module, example)
    steeper = deepcopy(other)
    steeper[1] = nn.GELU(approximate="tanh")  # the same tensors, another program
    assert not fs.verify(path, module, steeper, example)
    with torch.no_grad():
        steeper = deepcopy(other)
        steeper[0].bias[0] += 1e-4
    assert not fs.verify(path, module, steeper, example)


def test_changed_certificates_of_modules_are_refused(tmp_path):
    module, other, example, found = module_proof(tmp_path, tolerance=0)
    path = tmp_path / "changed.json"
    assert found["claim"]["precision"] is None and checker.check(found)
    accepted = 0
    for place, made in mutants(found, most=2):
        path.write_text(json.dumps(made))
        try:
            checker.check(json.loads(json.dumps(made), parse_constant=checker._no_constant))
        except (checker.Malformed, checker.Fails, checker.TooLarge, ValueError, OverflowError):
            continue
        accepted += 1
        # what stands for the modules alone: the words of the program, the element, the shapes, how large a claim is
        assert place[0] in ("program", "element", "claim"), place
        assert place[0] != "claim" or place[1] in ("inputs", "tolerance", "margin") or place[-1] == "shape", place
        if accepted % 40 == 0 and place[0] != "claim":  # with the modules nothing is left to trust
            with suppress(fs.FiberscopeError):
                assert not fs.verify(path, module, other, example), place
    assert accepted


def test_numbers_that_are_too_many_are_compared_with_the_modules(tmp_path, monkeypatch):
    monkeypatch.setattr("fiberscope.equality.beyond.module_certificates.LARGEST", 3)
    module, other, example, found = module_proof(tmp_path)
    assert found["numbers"] is None
    with pytest.raises(checker.TooLarge):
        checker.check(found)
    with pytest.raises(fs.InputError, match="not in the certificate"):
        fs.verify(tmp_path / "proof.json")
    assert fs.verify(tmp_path / "proof.json", module, other, example).ok
    assert not fs.verify(tmp_path / "proof.json", other, module, example)


@pytest.mark.parametrize("name", ["smooth", "bert", "gpt2"])
def test_an_audit_takes_modules_that_are_no_programs(name):
    module, example = drawn(name)
    structure = permutation_structure(module, example).only("permutation")
    other = structure.apply(module, structure.random(1))
    found = fs.audit(module, other, example=example, data=example)
    assert found.equal is True and found.structure is found.verdict and found.rounding is found.verdict
    assert found.data.samples == (3 if name == "smooth" else 2) and 0 <= found.data.largest < 1e-5
    assert (found.data.differing is None) == (name == "gpt2")  # a class for every token is no class of the sample
    with torch.no_grad():
        for value in other.parameters():
            value.add_(0.1 * torch.randn(value.shape))
    moved = fs.audit(module, other, example=example, data=example)
    assert moved.equal is None and moved.structure is None and moved.data.largest > 1e-3
    for asked in (fs.audit, fs.equivalent):
        with pytest.raises(fs.UnsupportedModelError, match="example=inputs"):
            asked(module, other)
