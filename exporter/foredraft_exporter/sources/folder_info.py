"""The sidecar files of a Hugging Face folder: config, tokenizer, generation defaults, template, licence."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from foredraft.errors import CheckpointError
from foredraft_exporter.sources.added_tokens import Sidecars, text_of, with_added_tokens
from foredraft_exporter.sources.checkpoint import CheckpointInfo
from foredraft_exporter.sources.ends import all_ends
from foredraft_exporter.sources.mapped import read_small

_SAMPLING = ("temperature", "top_k", "top_p", "min_p", "repetition_penalty")


def read_info(folder: Path, name: str) -> tuple[CheckpointInfo, bytes]:
    """All about the model but its tensors, and its tokenizer.json with the tokens that only other files know.

    Raises ``CheckpointError`` if config.json or tokenizer.json is missing or not what it should be.
    """
    config = _object(folder / "config.json", required=True)
    tokenizer_config = _object(folder / "tokenizer_config.json")
    _require_tokenizer(folder / "tokenizer.json")
    special, added = _object(folder / "special_tokens_map.json"), _object(folder / "added_tokens.json")
    sidecars = Sidecars(folder, tokenizer_config, special, added)
    data = with_added_tokens(read_small(folder / "tokenizer.json"), sidecars)
    info = CheckpointInfo(
        name=name,
        config=config,
        generation=_generation(config, _object(folder / "generation_config.json"), sidecars, json.loads(data)),
        chat_template=_chat_template(folder, tokenizer_config),
        license=_license(folder),
    )
    return info, data


def token_ids(value: object) -> set[int]:
    """An id, a list of ids, or nothing, as a set."""
    items = value if isinstance(value, list) else [value]
    return {item for item in items if type(item) is int and item >= 0}


def _object(path: Path, required: bool = False) -> dict[str, Any]:
    if not path.exists():
        if required:
            raise CheckpointError(f"{path}: missing; expected a Hugging Face folder with config.json and *.safetensors")
        return {}
    try:
        value = json.loads(read_small(path))
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{path}: is not valid JSON ({error}); download it again") from error
    if not isinstance(value, dict):
        raise CheckpointError(f"{path}: holds a {type(value).__name__}, expected an object")
    return value


def _require_tokenizer(path: Path) -> None:
    if not path.exists():
        raise CheckpointError(
            f"{path}: missing; a tokenizer.model alone is not enough. Write it with "
            "`AutoTokenizer.from_pretrained(FOLDER, use_fast=True).save_pretrained(FOLDER)`"
        )
    _object(path)


def _generation(
    config: dict[str, Any], generation: dict[str, Any], sidecars: Sidecars, tokenizer: dict[str, Any]
) -> dict[str, Any]:
    """Every end that any of the files knows, and whether a raw prompt starts with BOS."""
    named = {key: _token_id(sidecars.named().get(key), tokenizer) for key in ("bos_token", "eos_token")}
    eos = token_ids(generation.get("eos_token_id")) | token_ids(config.get("eos_token_id"))
    others = (_token_id(file.get("eos_token"), tokenizer) for file in (sidecars.config, sidecars.special))
    eos |= {other for other in others if other is not None}
    whole = [(int(token["id"]), str(token["content"])) for token in tokenizer.get("added_tokens") or []]
    candidates = (named["bos_token"], generation.get("bos_token_id"), config.get("bos_token_id"))
    bos = next((c for c in candidates if type(c) is int), None)
    explicit = sidecars.config.get("add_bos_token")
    add_bos = explicit if isinstance(explicit, bool) else bos is not None and _processor_adds(tokenizer, bos)
    sampling = {key: generation[key] for key in _SAMPLING if generation.get(key) is not None}
    return {
        "bos_token_id": bos,
        "eos_token_ids": all_ends(named["eos_token"], eos, whole),
        "add_bos": add_bos and bos is not None,
        "sampling": sampling if generation.get("do_sample") else {},
    }


def _token_id(token: object, tokenizer: dict[str, Any]) -> int | None:
    """The id of a special token that a file names by its text (plain or as an object)."""
    text = text_of(token)
    if text is None:
        return None
    for added in tokenizer.get("added_tokens") or []:
        if added.get("content") == text:
            return int(added["id"])
    vocabulary = (tokenizer.get("model") or {}).get("vocab")
    found = vocabulary.get(text) if isinstance(vocabulary, dict) else None
    return int(found) if found is not None else None


def _processor_adds(tokenizer: dict[str, Any], bos: int) -> bool:
    """Whether tokenizer.json's own post-processor puts ``bos`` before a single text."""
    processor = tokenizer.get("post_processor") or {}
    for step in processor.get("processors") or [processor]:
        if step.get("type") != "TemplateProcessing" or not step.get("single"):
            continue
        first = step["single"][0].get("SpecialToken")
        if first and bos in step.get("special_tokens", {}).get(first["id"], {}).get("ids", ()):
            return True
    return False


def _chat_template(folder: Path, tokenizer_config: dict[str, Any]) -> str | None:
    jinja = folder / "chat_template.jinja"
    if jinja.exists():
        return read_small(jinja).decode("utf-8")
    template = tokenizer_config.get("chat_template") or _object(folder / "chat_template.json").get("chat_template")
    if isinstance(template, list):
        named = {item.get("name"): item.get("template") for item in template if isinstance(item, dict)}
        template = named.get("default")
    return template if isinstance(template, str) else None


def _license(folder: Path) -> dict[str, Any]:
    """What the model card's front matter says, and the licence files that lie beside the weights."""
    found: dict[str, Any] = {}
    card = folder / "README.md"
    if card.exists():
        matter = re.match(r"---\s*\n(.*?)\n---", read_small(card).decode("utf-8", "replace"), re.DOTALL)
        for key in ("license", "license_name", "license_link") if matter else ():
            value = re.search(rf"^{key}:[ \t]*[\"']?([^\"'\n]+)", matter.group(1) if matter else "", re.MULTILINE)
            if value:
                found[key.removeprefix("license_") if key != "license" else "id"] = value.group(1).strip()
    files = sorted(p for pattern in ("LICENSE*", "NOTICE*", "USE_POLICY*") for p in folder.glob(pattern))
    if files:
        found["files"] = [str(path) for path in files]
    return found
