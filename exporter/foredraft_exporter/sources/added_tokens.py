"""Tokens that only a folder's sidecar files know, put into tokenizer.json.

The files are read in the order of transformers (``PreTrainedTokenizerBase._from_pretrained``): with
``added_tokens_decoder`` in tokenizer_config.json that is all; without it special_tokens_map.json and added_tokens.json
count too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Tokenizer

from foredraft.errors import CheckpointError

NAMED = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")
_LISTS = ("extra_special_tokens", "additional_special_tokens")
_FLAGS = ("single_word", "lstrip", "rstrip", "normalized", "special")


@dataclass(frozen=True, slots=True)
class Sidecars:
    """The files of a folder that speak of tokens, as objects; an absent one is empty."""

    folder: Path
    config: Mapping[str, Any]
    special: Mapping[str, Any]
    added: Mapping[str, Any]

    def named(self) -> Mapping[str, Any]:
        """The special tokens by their names (``eos_token``), each a text or an object."""
        return self.config if "added_tokens_decoder" in self.config else {**self.config, **self.special}


def text_of(token: object) -> str | None:
    """A token's text, where a file gives it plainly or as an object."""
    text = token.get("content") if isinstance(token, Mapping) else token
    return text if isinstance(text, str) and text else None


def with_added_tokens(data: bytes, sidecars: Sidecars) -> bytes:
    """tokenizer.json with what it lacks; ``data`` itself if it lacks nothing.

    Raises CheckpointError for a token that a file gives another id than it gets here, naming both.
    """
    try:
        tokenizer = Tokenizer.from_buffer(data)
    except Exception as error:  # the library raises bare Exception
        raise CheckpointError(
            f"{sidecars.folder / 'tokenizer.json'}: not a tokenizer that can be read ({error}); download it again"
        ) from error
    known = {token.content: token for token in tokenizer.get_added_tokens_decoder().values()}
    declared = dict(_declared(sidecars))
    missing = [token for _, token in sorted(declared.values(), key=lambda item: item[0]) if _differs(token, known)]
    there = known.keys() | {token.content for token in missing}
    for token in _special(sidecars):
        if token.content not in there:
            missing.append(token)
            there |= {token.content}
    names = {text_of(sidecars.named().get(name)) for name in NAMED}
    for token in missing:
        token.special = token.special or token.content in names
    if missing:
        tokenizer.add_tokens(missing)
    for text, (wanted, _) in declared.items():
        got = tokenizer.token_to_id(text)
        if got != wanted:
            raise CheckpointError(
                f"{sidecars.folder}: token {text!r} has id {wanted} in {_source(sidecars)}, but in tokenizer.json it "
                f"has {got}; write both again: `AutoTokenizer.from_pretrained(FOLDER).save_pretrained(FOLDER)`"
            )
    return tokenizer.to_str(pretty=False).encode("utf-8") if missing else data


def _declared(sidecars: Sidecars) -> Iterator[tuple[str, tuple[int, AddedToken]]]:
    """Text -> (id, token), for every token that a file gives an id."""
    if "added_tokens_decoder" not in sidecars.config:
        special = {token.content for token in _special(sidecars)}
        for text, index in sidecars.added.items():
            if type(index) is not int or not text:
                raise CheckpointError(
                    f"{sidecars.folder / 'added_tokens.json'}: {text!r}: got {index!r}, expected an id"
                )
            yield text, (index, AddedToken(text, normalized=text not in special, special=text in special))
        return
    where = f"{sidecars.folder / 'tokenizer_config.json'}: added_tokens_decoder"
    decoder = sidecars.config["added_tokens_decoder"]
    if not isinstance(decoder, Mapping):
        raise CheckpointError(f"{where}: holds a {type(decoder).__name__}, expected an object of id and token")
    for index, token in decoder.items():
        content = text_of(token)
        if not isinstance(token, Mapping) or content is None or not index.isdecimal():
            raise CheckpointError(f"{where}: {index!r}: expected an id, and a token with its content")
        yield content, (int(index), _token(token))


def _special(sidecars: Sidecars) -> Iterator[AddedToken]:
    """Tokens that have a name or stand in a list of specials; no file need give them an id."""
    named = sidecars.named()
    further = [key for key in named if key.endswith("_token") and key not in NAMED]
    values: list[Any] = [named.get(key) for key in (*NAMED, *further)]
    for key in _LISTS:
        group = named.get(key)
        values += group.values() if isinstance(group, Mapping) else group if isinstance(group, list) else ()
    for value in values:
        text = text_of(value)
        if text is not None:
            yield _token({**value, "special": True}) if isinstance(value, Mapping) else AddedToken(text, special=True)


def _token(token: Mapping[str, Any]) -> AddedToken:
    flags = {key: token[key] for key in _FLAGS if isinstance(token.get(key), bool)}
    return AddedToken(token["content"], **flags)


def _differs(token: AddedToken, known: Mapping[str, AddedToken]) -> bool:
    return token.content not in known or repr(known[token.content]) != repr(token)


def _source(sidecars: Sidecars) -> str:
    return "tokenizer_config.json" if "added_tokens_decoder" in sidecars.config else "added_tokens.json"
