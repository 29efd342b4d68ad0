"""Tiny random models for tests: Hugging Face folders and GGUF files, written with numpy alone in
milliseconds.

4 layers, 64 wide, one token per byte. Weights are scaled so that logits differ strongly and greedy text
varies.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save_file
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

VOCABULARY = 272
BOS, EOS, USER, ASSISTANT, SYSTEM = 256, 257, 258, 259, 260
SPECIALS = ["<s>", "</s>", "<|user|>", "<|assistant|>", "<|system|>"]
SPECIALS += [f"<|reserved_{i}|>" for i in range(VOCABULARY - 256 - len(SPECIALS))]
CHAT_TEMPLATE = (
    "<s>{% for message in messages %}<|{{ message['role'] }}|>{{ message['content'] }}</s>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
_CLASSES = {"llama": "Llama", "mistral": "Mistral", "qwen2": "Qwen2", "qwen3": "Qwen3", "smollm3": "SmolLM3"}
_GGUF_NAMES = {
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}

Tensors = dict[str, NDArray[np.float32]]


def tiny_config(model_type: str = "llama", **overrides: Any) -> dict[str, Any]:
    """config.json of a tiny model of one of the supported types."""
    config: dict[str, Any] = {
        "architectures": [f"{_CLASSES[model_type]}ForCausalLM"],
        "model_type": model_type,
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_hidden_layers": 4,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "vocab_size": VOCABULARY,
        "max_position_embeddings": 256,
        "rms_norm_eps": 1e-5,
        "hidden_act": "silu",
        "rope_theta": 10000.0,
        "tie_word_embeddings": False,
        "bos_token_id": BOS,
        "eos_token_id": EOS,
        "torch_dtype": "float32",
    }
    if model_type == "qwen3":
        config["head_dim"] = 32
    if model_type == "mistral":
        config["sliding_window"] = None
    if model_type == "smollm3":
        config |= {"no_rope_layers": [1, 1, 1, 0], "pad_token_id": None}
    return config | overrides


def tiny_tensors(config: dict[str, Any], seed: int = 0) -> Tensors:
    """Random weights under Hugging Face names, as the config (and its model_type) asks for."""
    random = np.random.default_rng(seed)
    hidden, inner = config["hidden_size"], config["intermediate_size"]
    head_dim = config.get("head_dim") or hidden // config["num_attention_heads"]
    q, kv = config["num_attention_heads"] * head_dim, config["num_key_value_heads"] * head_dim

    def matrix(n: int, k: int, gain: float = 1.0) -> NDArray[np.float32]:
        return (random.standard_normal((n, k)) * gain / np.sqrt(k)).astype(np.float32)

    def norm(n: int) -> NDArray[np.float32]:
        return (1 + 0.1 * random.standard_normal(n)).astype(np.float32)

    tensors: Tensors = {"model.embed_tokens.weight": matrix(config["vocab_size"], hidden, 4.0)}
    for i in range(config["num_hidden_layers"]):
        p = f"model.layers.{i}"
        tensors[f"{p}.input_layernorm.weight"] = norm(hidden)
        tensors[f"{p}.post_attention_layernorm.weight"] = norm(hidden)
        for name, n, k in (("q", q, hidden), ("k", kv, hidden), ("v", kv, hidden), ("o", hidden, q)):
            tensors[f"{p}.self_attn.{name}_proj.weight"] = matrix(n, k, 1.5)
            biased = config.get("attention_bias") or (config["model_type"] == "qwen2" and name != "o")
            if biased:
                tensors[f"{p}.self_attn.{name}_proj.bias"] = (0.3 * random.standard_normal(n)).astype(np.float32)
        if config["model_type"] == "qwen3":
            tensors[f"{p}.self_attn.q_norm.weight"] = norm(head_dim)
            tensors[f"{p}.self_attn.k_norm.weight"] = norm(head_dim)
        for name, n, k in (("gate", inner, hidden), ("up", inner, hidden), ("down", hidden, inner)):
            tensors[f"{p}.mlp.{name}_proj.weight"] = matrix(n, k, 2.0)
            if config.get("mlp_bias"):
                tensors[f"{p}.mlp.{name}_proj.bias"] = (0.1 * random.standard_normal(n)).astype(np.float32)
    tensors["model.norm.weight"] = norm(hidden)
    if not config.get("tie_word_embeddings"):
        tensors["lm_head.weight"] = matrix(config["vocab_size"], hidden, 3.0)
    return tensors


def byte_alphabet() -> list[str]:
    """GPT-2's visible character for every byte value."""
    visible = [*range(33, 127), *range(161, 173), *range(174, 256)]
    hidden = [byte for byte in range(256) if byte not in visible]
    characters = {byte: chr(byte) for byte in visible} | {byte: chr(256 + i) for i, byte in enumerate(hidden)}
    return [characters[byte] for byte in range(256)]


def byte_tokenizer() -> Tokenizer:
    """One token per byte (its id is its value), then the special tokens."""
    tokenizer = Tokenizer(models.BPE(vocab={c: i for i, c in enumerate(byte_alphabet())}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(text, special=True, normalized=False) for text in SPECIALS])
    return tokenizer


def tiny_checkpoint(
    folder: Path,
    model_type: str = "llama",
    seed: int = 0,
    *,
    shards: int = 1,
    dtype: type[np.generic] = np.float32,
    **overrides: Any,
) -> Path:
    """Writes a Hugging Face folder and returns it. ``overrides`` go into config.json."""
    config = tiny_config(model_type, **overrides)
    tensors = {name: value.astype(dtype) for name, value in tiny_tensors(config, seed).items()}
    folder.mkdir(parents=True, exist_ok=True)
    _write_shards(folder, tensors, shards)
    _write_json(folder / "config.json", config)
    _write_json(folder / "generation_config.json", {"bos_token_id": BOS, "eos_token_id": EOS})
    tokenizer_config = {"bos_token": "<s>", "eos_token": "</s>", "add_bos_token": True}
    _write_json(folder / "tokenizer_config.json", tokenizer_config | {"chat_template": CHAT_TEMPLATE})
    (folder / "tokenizer.json").write_text(byte_tokenizer().to_str(), encoding="utf-8")
    (folder / "README.md").write_text("---\nlicense: apache-2.0\n---\nA tiny random model.\n", encoding="utf-8")
    return folder


def _write_shards(folder: Path, tensors: dict[str, NDArray[Any]], shards: int) -> None:
    if shards == 1:
        save_file(tensors, folder / "model.safetensors")
        return
    names = list(tensors)
    weight_map = {}
    for shard in range(shards):
        file = f"model-{shard + 1:05d}-of-{shards:05d}.safetensors"
        part = {name: tensors[name] for name in names[shard::shards]}
        save_file(part, folder / file)
        weight_map |= dict.fromkeys(part, file)
    _write_json(folder / "model.safetensors.index.json", {"metadata": {}, "weight_map": weight_map})


def _write_json(path: Path, value: object) -> None:
    path.write_text(json.dumps(value), encoding="utf-8")


def permute_rows(rows: NDArray[Any], heads: int) -> NDArray[Any]:
    """Half-split rotation order -> llama.cpp's interleaved order, as its converter does to q and k."""
    half = rows.shape[0] // heads // 2
    return rows.reshape(heads, 2, half, *rows.shape[1:]).swapaxes(1, 2).reshape(rows.shape)


def tiny_gguf(
    path: Path,
    kind: str = "Q4_1",
    seed: int = 0,
    *,
    model_type: str = "llama",
    kinds: dict[str, str] | None = None,
    metadata: dict[str, Any] | None = None,
    extra: Tensors | None = None,
    part_tensors: int = 0,
    empty_first: bool = False,
    **overrides: Any,
) -> Path:
    """Writes the same model as ``tiny_checkpoint`` as GGUF, with ``extra`` tensors under GGUF names.

    With ``part_tensors`` it is in parts of so many tensors each, and the path is that of the first, which has
    metadata alone if ``empty_first``.

    Matrices have type ``kind``, or what ``kinds`` says for a part of their GGUF name (``{"attn_v":
    "Q8_0"}``). ``metadata`` adds numbers and texts to the header.
    """
    config = tiny_config(model_type, **overrides)
    path.parent.mkdir(parents=True, exist_ok=True)
    writer = gguf.GGUFWriter(path, model_type, split_max_tensors=part_tensors, small_first_shard=empty_first)
    _write_metadata(writer, config, metadata or {})
    heads = {"attn_q": config["num_attention_heads"], "attn_k": config["num_key_value_heads"]}
    for name, value in tiny_tensors(config, seed).items():
        own = _gguf_name(name)
        part = own.split(".")[-2]
        if model_type in ("llama", "smollm3") and part in heads:
            value = permute_rows(value, heads[part])
        if value.ndim == 1:
            writer.add_tensor(own, value)
            continue
        found = next((k for key, k in (kinds or {}).items() if key in own), kind)
        qtype = gguf.GGMLQuantizationType[found]
        writer.add_tensor(own, gguf.quantize(np.ascontiguousarray(value), qtype), raw_dtype=qtype)
    for name, value in (extra or {}).items():
        writer.add_tensor(name, value)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    parts = writer.format_shard_names(path)
    writer.close()
    return parts[0]


def _gguf_name(name: str) -> str:
    top = {"model.embed_tokens.weight": "token_embd.weight", "model.norm.weight": "output_norm.weight"}
    top["lm_head.weight"] = "output.weight"
    if name in top:
        return top[name]
    _, _, layer, *module, suffix = name.split(".")
    return f"blk.{layer}.{_GGUF_NAMES['.'.join(module)]}.{suffix}"


def _write_metadata(writer: gguf.GGUFWriter, config: dict[str, Any], metadata: dict[str, Any]) -> None:
    head_dim = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_key_length(head_dim)
    writer.add_value_length(head_dim)
    writer.add_rope_dimension_count(head_dim)
    writer.add_rope_freq_base(config["rope_theta"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_license("apache-2.0")
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list([*byte_alphabet(), *SPECIALS[:-1], "th"])
    writer.add_token_types([1] * 256 + [3] * (len(SPECIALS) - 1) + [1])
    writer.add_token_merges(["t h"])
    writer.add_bos_token_id(BOS)
    writer.add_eos_token_id(EOS)
    writer.add_add_bos_token(True)
    writer.add_chat_template(CHAT_TEMPLATE)
    for key, value in metadata.items():
        if isinstance(value, str):
            writer.add_string(key, value)
        elif isinstance(value, bool):
            writer.add_bool(key, value)
        elif isinstance(value, float):
            writer.add_float32(key, value)
        else:
            writer.add_uint32(key, value)
