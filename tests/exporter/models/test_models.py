"""Every architecture: decoder and tensors are those of transformers' own model, and the rest is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from foredraft.errors import CheckpointError, ForedraftError, UnsupportedModelError
from foredraft_exporter import models
from foredraft_exporter.sources.checkpoint import open_checkpoint
from foredraft_exporter.weights.weight_plan import plan
from tests.fixtures import tiny_checkpoint, tiny_config

transformers = pytest.importorskip("transformers")
TYPES = ["llama", "mistral", "qwen2", "qwen3", "smollm3"]


def _reference(model_type: str, **overrides: Any) -> Any:
    """transformers' own config object for our tiny config."""
    settings = tiny_config(model_type, **overrides)
    return transformers.AutoConfig.for_model(settings.pop("model_type"), **settings)


@pytest.mark.parametrize("model_type", TYPES)
def test_decoder_is_what_transformers_builds(model_type: str, tmp_path: Path) -> None:
    """From the config as transformers 5 saves it (rope_parameters, layer_types and all)."""
    reference = _reference(model_type)
    reference.save_pretrained(tmp_path)
    saved = json.loads((tmp_path / "config.json").read_text())
    decoder = models.decoder(saved)
    model = transformers.AutoModelForCausalLM.from_config(reference)
    attention = model.model.layers[0].self_attn
    assert decoder == models.decoder(tiny_config(model_type))
    assert (decoder.layers, decoder.vocab_size) == (len(model.model.layers), model.lm_head.out_features)
    assert decoder.heads * decoder.head_dim == attention.q_proj.out_features == attention.o_proj.in_features
    assert decoder.kv_heads * decoder.head_dim == attention.k_proj.out_features
    assert (decoder.qkv_bias, decoder.o_bias) == (
        attention.q_proj.bias is not None,
        attention.o_proj.bias is not None,
    )
    assert decoder.mlp_bias is (model.model.layers[0].mlp.up_proj.bias is not None)
    assert decoder.qk_norm is hasattr(attention, "q_norm")
    assert decoder.attention_scale == attention.scaling
    assert decoder.norm_eps == model.model.norm.variance_epsilon
    assert decoder.no_rope_layers == ((3,) if model_type == "smollm3" else ())
    assert decoder.tied is False


@pytest.mark.parametrize("model_type", TYPES)
@pytest.mark.parametrize("tied", [True, False])
def test_plan_uses_exactly_transformers_tensors(model_type: str, tied: bool, tmp_path: Path) -> None:
    reference = _reference(model_type, tie_word_embeddings=tied)
    state = transformers.AutoModelForCausalLM.from_config(reference).state_dict()
    expected = {name: tuple(value.shape) for name, value in state.items()}
    if tied:
        del expected["lm_head.weight"]
    checkpoint = open_checkpoint(tiny_checkpoint(tmp_path / "m", model_type, tie_word_embeddings=tied))
    assert {name: checkpoint.shape(name) for name in checkpoint.names()} == expected
    weights = plan(checkpoint, models.decoder(checkpoint.info.config), "fp32")
    used = [part for item in (*weights.matrices, *weights.vectors) for part in item.parts]
    assert sorted(used) == sorted(expected)


def test_biases_everywhere(tmp_path: Path) -> None:
    folder = tiny_checkpoint(tmp_path / "m", attention_bias=True, mlp_bias=True)
    checkpoint = open_checkpoint(folder)
    names = {vector.name for vector in plan(checkpoint, models.decoder(checkpoint.info.config), "fp32").vectors}
    assert {"layers.0.qkv.bias", "layers.0.o.bias", "layers.0.gate_up.bias", "layers.0.down.bias"} <= names


@pytest.mark.parametrize(("model_type", "overrides", "message"), [
    ("llama", {"num_local_experts": 8}, "num_local_experts"),
    ("llama", {"moe_intermediate_size": 64}, "moe_intermediate_size"),
    ("llama", {"attention_multiplier": 0.5}, "attention_multiplier"),
    ("llama", {"residual_multiplier": 0.2}, "residual_multiplier"),
    ("llama", {"logit_scale": 0.06}, "logit_scale"),
    ("llama", {"final_logit_softcapping": 30.0}, "softcapping"),
    ("llama", {"use_parallel_residual": True}, "parallel"),
    ("llama", {"hidden_act": "gelu"}, "hidden_act"),
    ("llama", {"quantization_config": {"quant_method": "gptq"}}, "quantization_config"),
    ("llama", {"auto_map": {"AutoModelForCausalLM": "modeling.X"}}, "auto_map"),
    ("llama", {"architectures": ["LlamaForSequenceClassification"]}, "architectures"),
    ("llama", {"partial_rotary_factor": 0.5}, "partial_rotary_factor"),
    ("llama", {"rope_scaling": {"rope_type": "longrope", "factor": 4.0}}, "longrope"),
    ("llama", {"rope_scaling": {"type": "default", "mrope_section": [1, 2]}}, "mrope_section"),
    ("llama", {"rope_scaling": {"rope_type": "llama3", "factor": 8.0}}, "low_freq_factor"),
    ("llama", {"rope_parameters": {"full_attention": {"rope_theta": 1e4}}}, "full_attention"),
    ("llama", {"no_rope_layers": [1, 0, 1, 0]}, "no_rope_layers"),
    ("llama", {"layer_types": ["full_attention"] * 3 + ["linear_attention"]}, "linear_attention"),
    ("llama", {"layer_types": ["full_attention"] * 3 + ["sliding_attention"], "sliding_window": 8},
    "sliding_window"), ("mistral", {"sliding_window": 128}, "--context 128"),
    ("qwen2", {"use_sliding_window": True, "sliding_window": 128, "max_window_layers": 2}, "--context 128"),
    ("smollm3", {"use_sliding_window": True, "sliding_window": 128}, "--context 128"),
    ("llama", {"head_dim": 15}, "head_dim"),
    ("llama", {"vision_config": {"depth": 1}}, "multimodal"),
])  # fmt: skip
def test_refused_by_name(model_type: str, overrides: dict[str, Any], message: str) -> None:
    with pytest.raises(UnsupportedModelError, match=message):
        models.decoder(tiny_config(model_type, **overrides))


@pytest.mark.parametrize(("overrides", "context"), [
    ({"sliding_window": 128}, 128),
    ({"sliding_window": 4096}, None),
])  # fmt: skip
def test_a_window_that_hides_nothing(overrides: dict[str, Any], context: int | None) -> None:
    assert models.decoder(tiny_config("mistral", **overrides), context).context == (context or 256)


@pytest.mark.parametrize("overrides", [
    {"use_sliding_window": False, "sliding_window": 64, "max_window_layers": 2},
    {"use_sliding_window": True, "sliding_window": 64, "max_window_layers": 4},
    {"sliding_window": 64, "layer_types": ["full_attention"] * 4},
])  # fmt: skip
def test_a_window_that_is_switched_off(overrides: dict[str, Any]) -> None:
    assert models.decoder(tiny_config("qwen2", **overrides)).context == 256


def test_harmless_keys_are_ignored() -> None:
    noise = {"_name_or_path": "x", "use_cache": True, "pretraining_tp": 1, "attention_dropout": 0.0}
    neutral = {"num_experts": 0, "attention_multiplier": 1.0, "final_logit_softcapping": None, "alibi": False}
    noisy = tiny_config(**noise, **neutral, unsloth_fixed=True)
    assert models.decoder(noisy) == models.decoder(tiny_config())


def test_unknown_type_lists_the_known() -> None:
    with pytest.raises(UnsupportedModelError, match=r"'mixtral'.*llama, mistral, qwen2, qwen3, smollm3"):
        models.decoder({"model_type": "mixtral"})


@pytest.mark.parametrize("overrides", [
    {"hidden_size": None}, {"num_hidden_layers": "4"}, {"num_key_value_heads": 3}, {"hidden_size": 65},
    {"vocab_size": 0}, {"max_position_embeddings": True},
])  # fmt: skip
def test_sizes_that_make_no_sense(overrides: dict[str, Any]) -> None:
    with pytest.raises(CheckpointError, match="config: "):
        models.decoder(tiny_config(**overrides))


@pytest.mark.parametrize("context", [0, -1, 257])
def test_impossible_context(context: int) -> None:
    with pytest.raises(ForedraftError, match="1 to 256"):
        models.decoder(tiny_config(), context)


def test_scaled_rotation_allows_more() -> None:
    scaled = tiny_config(rope_scaling={"type": "dynamic", "factor": 4.0})
    assert models.decoder(scaled).context == 256
    assert models.decoder(scaled, 1024).context == 1024


def test_a_tensor_without_a_place_is_refused(tmp_path: Path) -> None:
    """Qwen3's norms in a folder that calls itself Llama would silently change the function."""
    folder = tiny_checkpoint(tmp_path / "m", "qwen3")
    config = json.loads((folder / "config.json").read_text())
    config |= {"model_type": "llama", "architectures": ["LlamaForCausalLM"]}
    (folder / "config.json").write_text(json.dumps(config))
    checkpoint = open_checkpoint(folder)
    with pytest.raises(UnsupportedModelError, match="norm"):
        plan(checkpoint, models.decoder(checkpoint.info.config), "auto")


@pytest.mark.parametrize(("overrides", "message"), [
    ({"intermediate_size": 128}, "mlp"), ({"num_hidden_layers": 5}, r"no tensor 'model\.layers\.4"),
    ({"vocab_size": 300}, "lm_head"), ({"num_hidden_layers": 3}, r"model\.layers\.3"),
])  # fmt: skip
def test_config_of_another_model(tmp_path: Path, overrides: dict[str, Any], message: str) -> None:
    folder = tiny_checkpoint(tmp_path / "m")
    (folder / "config.json").write_text(json.dumps(tiny_config(**overrides)))
    checkpoint = open_checkpoint(folder)
    with pytest.raises(ForedraftError, match=message):
        plan(checkpoint, models.decoder(checkpoint.info.config), "fp32")
