"""GGUF metadata -> tokenizer.json. Two kinds: ``gpt2`` (byte-level BPE) and ``llama`` (SentencePiece BPE)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers

from foredraft.errors import CheckpointError, ForedraftError, UnsupportedModelError
from foredraft_exporter.sources.ends import all_ends
from foredraft_exporter.sources.pretokenizers import PRE_TOKENIZERS, PreTokenizer

_KEY = "tokenizer.ggml."
_UNKNOWN, _CONTROL, _USER_DEFINED = 2, 3, 4
_ENDS = ("eos_token_id", "eot_token_id", "eom_token_id")
_SPACE = "\u2581"  # SentencePiece's visible space


def tokenizer_from(path: Path, metadata: Mapping[str, Any]) -> bytes:
    """The tokenizer as JSON, without a post-processor: BOS is the runtime's affair (``add_bos``).

    Raises ``UnsupportedModelError`` for an unknown kind or pre-tokenizer, listing those that are known, and
    ``CheckpointError`` where vocabulary, merges, scores and types do not belong together.
    """
    tokens = _tokens(path, metadata)
    types = metadata.get(_KEY + "token_type") or [1] * len(tokens)
    if not isinstance(types, list) or len(types) != len(tokens):
        raise CheckpointError(
            f"{path}: its token types are not one for each of {len(tokens)} tokens; the file is damaged"
        )
    kind = _kind(path, metadata)
    try:
        if kind == "gpt2":
            tokenizer = _byte_level(path, metadata, tokens)
        else:
            tokenizer = _sentencepiece(path, metadata, tokens, types)
        tokenizer.add_special_tokens(_added(tokens, types, _CONTROL))
        tokenizer.add_tokens(_added(tokens, types, _USER_DEFINED))
        return tokenizer.to_str(pretty=False).encode("utf-8")
    except ForedraftError:
        raise
    except Exception as error:  # the tokenizers library raises bare Exception
        raise CheckpointError(
            f"{path}: its tokenizer does not fit together ({error}); convert the model again"
        ) from error


def generation_from(path: Path, metadata: Mapping[str, Any]) -> dict[str, Any]:
    """The ``generation`` part of ``CheckpointInfo``; BOS as llama.cpp decides it."""
    tokens, kind = _tokens(path, metadata), _kind(path, metadata)
    bos = metadata.get(_KEY + "bos_token_id", 1 if kind == "llama" else None)
    default = True if kind == "llama" else _pre_tokenizer(path, metadata).add_bos
    ends = [metadata[_KEY + key] for key in _ENDS if type(metadata.get(_KEY + key)) is int]
    types = metadata.get(_KEY + "token_type") or []
    whole = [(i, tokens[i]) for i, of in enumerate(types[: len(tokens)]) if of in (_CONTROL, _USER_DEFINED)]
    eos = metadata.get(_KEY + "eos_token_id")
    return {
        "bos_token_id": bos,
        "eos_token_ids": all_ends(eos if type(eos) is int else None, ends, whole),
        "add_bos": bool(metadata.get(_KEY + "add_bos_token", default)) and bos is not None,
        "sampling": {},
    }


def _tokens(path: Path, metadata: Mapping[str, Any]) -> list[str]:
    tokens = metadata.get(_KEY + "tokens")
    if not isinstance(tokens, list) or not tokens or not all(isinstance(token, str) for token in tokens):
        raise CheckpointError(f"{path}: has no tokenizer ({_KEY}tokens); use a GGUF file that has one")
    return tokens


def _kind(path: Path, metadata: Mapping[str, Any]) -> str:
    kind = metadata.get(_KEY + "model")
    if kind not in ("gpt2", "llama"):
        raise UnsupportedModelError(f"{path}: tokenizer kind {kind!r} is not supported; supported: gpt2, llama")
    return str(kind)


def _pre_tokenizer(path: Path, metadata: Mapping[str, Any]) -> PreTokenizer:
    name = metadata.get(_KEY + "pre")
    if name not in PRE_TOKENIZERS:
        raise UnsupportedModelError(
            f"{path}: pre-tokenizer {name!r} is not known; known: {', '.join(PRE_TOKENIZERS)}. "
            "Export from the Hugging Face folder instead, whose tokenizer.json is complete"
        )
    return PRE_TOKENIZERS[name]


def _byte_level(path: Path, metadata: Mapping[str, Any], tokens: list[str]) -> Tokenizer:
    merges = metadata.get(_KEY + "merges")
    if not isinstance(merges, list):
        raise CheckpointError(f"{path}: byte-level BPE without {_KEY}merges; convert the model again")
    pre = _pre_tokenizer(path, metadata)
    pairs = [(merge[:at], merge[at + 1 :]) for merge in merges if (at := merge.find(" ", 1)) > 0]
    vocabulary = {token: index for index, token in enumerate(tokens)}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=pairs, ignore_merges=pre.ignore_merges))
    normalizer = pre.normalizer()
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = pre.build()
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def _sentencepiece(path: Path, metadata: Mapping[str, Any], tokens: list[str], types: list[int]) -> Tokenizer:
    """BPE over characters with a fallback to bytes; spaces are U+2581, one is put before the text."""
    scores = metadata.get(_KEY + "scores")
    if not isinstance(scores, list) or len(scores) != len(tokens):
        raise CheckpointError(f"{path}: SentencePiece vocabulary without a score per token; convert the model again")
    if metadata.get(_KEY + "remove_extra_whitespaces"):
        raise UnsupportedModelError(f"{path}: {_KEY}remove_extra_whitespaces is not supported")
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
    if metadata.get(_KEY + "add_space_prefix", True):
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
