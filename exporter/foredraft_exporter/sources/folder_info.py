"""The sidecar files of a Hugging Face folder: config, tokenizer, generation defaults, template, licence."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from foredraft.errors import CheckpointError
from foredraft_exporter.sources.added_tokens import Sidecars, with_added_tokens
from foredraft_exporter.sources.checkpoint import CheckpointInfo
from foredraft_exporter.sources.ends import all_ends
from foredraft_exporter.sources.fields import Fields, read_fields, read_text
from foredraft_exporter.sources.mapped import read_small

_SAMPLING = ("temperature", "top_k", "top_p", "min_p", "repetition_penalty")


def read_info(folder: Path, name: str) -> tuple[CheckpointInfo, bytes]:
    """All about the model but its tensors, and its tokenizer.json with the tokens that only other files know.

    Raises ``CheckpointError`` if config.json or tokenizer.json is missing, or a file is not what it should be.
    """
    _require(folder / "config.json", "expected a Hugging Face folder with config.json and *.safetensors")
    _require(
        folder / "tokenizer.json",
        "a tokenizer.model alone is not enough. Write it with "
        "`AutoTokenizer.from_pretrained(FOLDER, use_fast=True).save_pretrained(FOLDER)`",
    )
    config = read_fields(folder / "config.json")
    read_fields(folder / "tokenizer.json")
    sidecars = Sidecars(
        read_fields(folder / "tokenizer_config.json"),
        read_fields(folder / "special_tokens_map.json"),
        read_fields(folder / "added_tokens.json"),
    )
    data = with_added_tokens(folder / "tokenizer.json", read_small(folder / "tokenizer.json"), sidecars)
    generation, bos_from = _generation(
        config, read_fields(folder / "generation_config.json"), sidecars, Tokenizer.from_buffer(data)
    )
    template, template_from = _chat_template(folder, sidecars.config)
    info = CheckpointInfo(
        name=name,
        path=folder,
        config=config,
        generation=generation,
        chat_template=template,
        license=_license(folder),
        origins={
            "tokenizer": str(folder / "tokenizer.json"),
            "bos_token_id": bos_from,
            "chat_template": template_from,
        },
    )
    return info, data


def _require(path: Path, otherwise: str) -> None:
    if not path.exists():
        raise CheckpointError(f"{path}: missing; {otherwise}")


def _generation(
    config: Fields, generation: Fields, sidecars: Sidecars, tokenizer: Tokenizer
) -> tuple[dict[str, Any], str]:
    """Every end that any of the files knows, and whether a raw prompt starts with BOS; and who says which one it is."""
    first = _token_id(sidecars.text("eos_token"), tokenizer)
    others = (_token_id(text, tokenizer) for text in sidecars.texts("eos_token"))
    eos = {*generation.ids("eos_token_id"), *config.ids("eos_token_id"), *(e for e in others if e is not None)}
    whole = [(index, token.content) for index, token in tokenizer.get_added_tokens_decoder().items()]
    named = _token_id(sidecars.text("bos_token"), tokenizer)
    candidates = [(named, sidecars.where("bos_token"))] if named is not None else []
    candidates += [
        (index, f"{file.where}: bos_token_id") for file in (generation, config) for index in file.ids("bos_token_id")
    ]
    bos, origin = next(iter(candidates), (None, ""))
    starts = bos is not None and _processor_adds(tokenizer, bos)
    sampling = {key: generation.number_or_none(key, above=-math.inf) for key in _SAMPLING}
    values = {
        "bos_token_id": bos,
        "eos_token_ids": all_ends(first, eos, whole),
        "add_bos": sidecars.config.flag("add_bos_token", starts) and bos is not None,
        "sampling": {k: v for k, v in sampling.items() if v is not None} if generation.flag("do_sample") else {},
    }
    return values, origin


def _token_id(text: str | None, tokenizer: Tokenizer) -> int | None:
    return None if text is None else tokenizer.token_to_id(text)


def _processor_adds(tokenizer: Tokenizer, bos: int) -> bool:
    """Whether tokenizer.json's own post-processor puts ``bos`` before a text."""
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return tokenizer.encode("a").ids[:1] == [bos]


def _chat_template(folder: Path, tokenizer_config: Fields) -> tuple[str | None, str]:
    """From its own file, else the default of those that another has, and from where; what is there has to be right."""
    key, jinja = "chat_template", folder / "chat_template.jinja"
    several = isinstance(tokenizer_config.get(key), list)
    named = {item.text("name"): item.text("template") for item in tokenizer_config.objects(key)} if several else {}
    inline = named.get("default") if several else tokenizer_config.text_or_none(key)
    other = read_fields(folder / "chat_template.json")
    alone = other.text_or_none(key)
    if jinja.exists():
        return read_text(jinja), str(jinja)
    return (inline, f"{tokenizer_config.where}: {key}") if inline else (alone, f"{other.where}: {key}")


def _license(folder: Path) -> dict[str, Any]:
    """What the model card's front matter says, and the licence files that lie beside the weights."""
    found: dict[str, Any] = {}
    card = folder / "README.md"
    if card.exists():
        matter = re.match(r"\ufeff?---\s*\n(.*?)\n---", read_small(card).decode("utf-8", "replace"), re.DOTALL)
        for key in ("license", "license_name", "license_link") if matter else ():
            value = re.search(rf"^{key}:[ \t]*[\"']?([^\"'\r\n]+)", matter.group(1) if matter else "", re.MULTILINE)
            if value:
                found[key.removeprefix("license_") if key != "license" else "id"] = value.group(1).strip()
    files = sorted(p for pattern in ("LICENSE*", "NOTICE*", "USE_POLICY*") for p in folder.glob(pattern) if p.is_file())
    if files:
        found["files"] = [str(path) for path in files]
    return found
