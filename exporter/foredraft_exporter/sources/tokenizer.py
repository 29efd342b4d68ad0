"""GGUF metadata -> tokenizer.json. Two kinds: ``gpt2`` (byte-level BPE) and ``llama`` (SentencePiece BPE)."""

from __future__ import annotations

from typing import Any

from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers

from foredraft.errors import CheckpointError, ForedraftError, UnsupportedModelError
from foredraft_exporter.sources.ends import all_ends
from foredraft_exporter.sources.fields import MOST, Fields, describe
from foredraft_exporter.sources.pretokenizers import PRE_TOKENIZERS, PreTokenizer

_KEY = "tokenizer.ggml."
_UNKNOWN, _CONTROL, _USER_DEFINED = 2, 3, 4
_ENDS = ("eos_token_id", "eot_token_id", "eom_token_id")
_SPACE = "\u2581"  # SentencePiece's visible space


def tokenizer_from(metadata: Fields) -> bytes:
    """The tokenizer as JSON, without a post-processor: BOS is the runtime's affair (``add_bos``).

    Raises ``UnsupportedModelError`` for an unknown kind or pre-tokenizer, listing those that are known, and
    ``CheckpointError`` where vocabulary, merges, scores and types do not belong together.
    """
    tokens = _tokens(metadata)
    types, kind = _types(metadata, tokens), _kind(metadata)
    parts = f"{_KEY}tokens and {_KEY}{'merges' if kind == 'gpt2' else 'scores'}"
    try:
        tokenizer = _byte_level(metadata, tokens) if kind == "gpt2" else _sentencepiece(metadata, tokens, types)
        tokenizer.add_special_tokens(_added(tokens, types, _CONTROL))
        tokenizer.add_tokens(_added(tokens, types, _USER_DEFINED))
        return tokenizer.to_str(pretty=False).encode("utf-8")
    except ForedraftError:
        raise
    except Exception as error:  # the tokenizers library raises bare Exception
        raise CheckpointError(
            f"{metadata.where}: {parts} do not fit together ({str(error)[:200]}); convert the model again"
        ) from error


def generation_from(metadata: Fields) -> dict[str, Any]:
    """The ``generation`` part of ``CheckpointInfo``; BOS as llama.cpp decides it."""
    tokens, kind = _tokens(metadata), _kind(metadata)
    bos = _one(metadata, "bos_token_id", 1 if kind == "llama" else None)
    default = True if kind == "llama" else _pre_tokenizer(metadata).add_bos
    declared = [end for key in _ENDS if (end := _one(metadata, key)) is not None]
    types = _types(metadata, tokens)
    whole = [(i, tokens[i]) for i, of in enumerate(types) if of in (_CONTROL, _USER_DEFINED)]
    return {
        "bos_token_id": bos,
        "eos_token_ids": all_ends(_one(metadata, _ENDS[0]), declared, whole),
        "add_bos": metadata.flag(_KEY + "add_bos_token", default) and bos is not None,
        "sampling": {},
    }


def _one(metadata: Fields, key: str, default: int | None = None) -> int | None:
    """A token's id; one below 0 is none."""
    key = _KEY + key
    if key in metadata and type(metadata[key]) is not int:
        raise metadata.fault(key, "a token's id")
    return next(iter(metadata.ids(key)), None) if key in metadata else default


def _tokens(metadata: Fields) -> list[str]:
    tokens = metadata.texts(_KEY + "tokens")
    if not tokens:
        raise CheckpointError(f"{metadata.where}: has no tokenizer ({_KEY}tokens); use a GGUF file that has one")
    return tokens


def _types(metadata: Fields, tokens: list[str]) -> list[int]:
    types = metadata.wholes(_KEY + "token_type", -MOST, MOST) or [1] * len(tokens)
    if len(types) != len(tokens):
        raise metadata.fault(_KEY + "token_type", f"one for each of {len(tokens)} in {_KEY}tokens; the file is damaged")
    return types


def _kind(metadata: Fields) -> str:
    kind = metadata.text(_KEY + "model")
    if kind not in ("gpt2", "llama"):
        raise UnsupportedModelError(
            f"{metadata.where}: {_KEY}model {describe(kind)} is not supported; supported: gpt2, llama"
        )
    return kind


def _pre_tokenizer(metadata: Fields) -> PreTokenizer:
    name = metadata.text_or_none(_KEY + "pre")
    if name not in PRE_TOKENIZERS:
        raise UnsupportedModelError(
            f"{metadata.where}: {_KEY}pre {describe(name)} is not known; known: {', '.join(PRE_TOKENIZERS)}. "
            "Export from the Hugging Face folder instead, whose tokenizer.json is complete"
        )
    return PRE_TOKENIZERS[name]


def _byte_level(metadata: Fields, tokens: list[str]) -> Tokenizer:
    if _KEY + "merges" not in metadata:
        raise metadata.fault(_KEY + "merges", "those of byte-level BPE; convert the model again")
    merges, pre = metadata.texts(_KEY + "merges"), _pre_tokenizer(metadata)
    pairs = [(merge[:at], merge[at + 1 :]) for merge in merges if (at := merge.find(" ", 1)) > 0]
    vocabulary = {token: index for index, token in enumerate(tokens)}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=pairs, ignore_merges=pre.ignore_merges))
    normalizer = pre.normalizer()
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = pre.build()
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def _sentencepiece(metadata: Fields, tokens: list[str], types: list[int]) -> Tokenizer:
    """BPE over characters with a fallback to bytes; spaces are U+2581, one is put before the text."""
    scores = metadata.numbers(_KEY + "scores")
    if len(scores) != len(tokens):
        raise metadata.fault(_KEY + "scores", f"one for each of {len(tokens)} in {_KEY}tokens; convert the model again")
    if metadata.flag(_KEY + "remove_extra_whitespaces"):
        raise UnsupportedModelError(f"{metadata.where}: {_KEY}remove_extra_whitespaces is not supported")
    vocabulary = {token: index for index, token in enumerate(tokens)}
    unknown = next((token for token, kind in zip(tokens, types, strict=True) if kind == _UNKNOWN), None)
    tokenizer = Tokenizer(
        models.BPE(
            vocab=vocabulary,
            merges=_merges(vocabulary, scores, types),
            unk_token=unknown,
            fuse_unk=True,
            byte_fallback=True,
        )
    )
    steps: list[normalizers.Normalizer] = [normalizers.Replace(" ", _SPACE)]
    after: list[decoders.Decoder] = [decoders.Replace(_SPACE, " "), decoders.ByteFallback(), decoders.Fuse()]
    if metadata.flag(_KEY + "add_space_prefix", True):
        steps.insert(0, normalizers.Prepend(_SPACE))
        after.append(decoders.Strip(" ", 1, 0))
    tokenizer.normalizer = normalizers.Sequence(steps)
    tokenizer.decoder = decoders.Sequence(after)
    return tokenizer


def _merges(vocabulary: dict[str, int], scores: list[float], types: list[int]) -> list[tuple[str, str]]:
    """SentencePiece merges the pair whose result scores best; as BPE merges, in that order."""
    ranked: list[tuple[float, int, int, str, str]] = []
    for piece, index in vocabulary.items():
        if types[index] != 1 and types[index] != _USER_DEFINED:
            continue
        for cut in range(1, len(piece)):
            left, right = piece[:cut], piece[cut:]
            if left in vocabulary and right in vocabulary:
                ranked.append((-scores[index], vocabulary[left], vocabulary[right], left, right))
    ranked.sort()
    return [(left, right) for _, _, _, left, right in ranked]


def _added(tokens: list[str], types: list[int], kind: int) -> list[AddedToken]:
    special = kind == _CONTROL
    return [
        AddedToken(token, special=special, normalized=False)
        for token, token_kind in zip(tokens, types, strict=True)
        if token_kind == kind and token
    ]
