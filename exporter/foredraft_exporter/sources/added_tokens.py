"""Tokens that only a folder's sidecar files know, put into tokenizer.json.

The files are read in the order of transformers (``PreTrainedTokenizerBase._from_pretrained``): with
``added_tokens_decoder`` in tokenizer_config.json that is all; without it special_tokens_map.json and added_tokens.json
count too.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from tokenizers import AddedToken, Tokenizer

from foredraft.errors import CheckpointError
from foredraft_exporter.sources.fields import Fields, describe, is_unicode

NAMED = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")
_LISTS = ("extra_special_tokens", "additional_special_tokens")
_FLAGS = ("single_word", "lstrip", "rstrip", "normalized", "special")


@dataclass(frozen=True, slots=True)
class Sidecars:
    """The files of a folder that speak of tokens: tokenizer_config.json, special_tokens_map.json, added_tokens.json."""

    config: Fields
    special: Fields
    added: Fields

    @property
    def decoder(self) -> bool:
        """Whether tokenizer_config.json knows all tokens itself."""
        return "added_tokens_decoder" in self.config

    def names(self) -> dict[str, Fields]:
        """The file that counts for each key."""
        files = (self.config,) if self.decoder else (self.config, self.special)
        return {key: file for file in files for key in file}

    def where(self, key: str) -> str:
        """Which file says it, and the key, for messages."""
        return f"{self.names().get(key, self.config).where}: {key}"

    def text(self, key: str) -> str | None:
        """The text of a special token by its name (``eos_token``)."""
        token = _token(self.names().get(key, self.config), key)
        return None if token is None else token.content

    def texts(self, key: str) -> list[str]:
        """The same from each file, whether it counts or not."""
        tokens = (_token(file, key) for file in (self.config, self.special))
        return [token.content for token in tokens if token is not None]


def with_added_tokens(path: Path, data: bytes, sidecars: Sidecars) -> bytes:
    """tokenizer.json (``data``, at ``path``) with what it lacks; ``data`` itself if it lacks nothing.

    Raises CheckpointError for a token that a file gives another id than it gets here, naming both.
    """
    try:
        tokenizer = Tokenizer.from_buffer(data)
    except Exception as error:  # the library raises bare Exception
        raise CheckpointError(
            f"{path}: not a tokenizer that can be read ({str(error)[:200]}); download it again"
        ) from error
    known = {token.content: token for token in tokenizer.get_added_tokens_decoder().values()}
    specials = list(_specials(sidecars))
    declared = dict(_declared(sidecars, {token.content for token in specials}))
    missing = [token for _, token in sorted(declared.values(), key=lambda item: item[0]) if _differs(token, known)]
    there = known.keys() | {token.content for token in missing}
    for token in specials:
        if token.content not in there:
            missing.append(token)
            there |= {token.content}
    names = {sidecars.text(name) for name in NAMED}
    for token in missing:
        token.special = token.special or token.content in names
    if missing:
        tokenizer.add_tokens(missing)
    for text, (wanted, _) in declared.items():
        got = tokenizer.token_to_id(text)
        if got != wanted:
            where = f"{sidecars.config.where}: added_tokens_decoder" if sidecars.decoder else sidecars.added.where
            raise CheckpointError(
                f"{where}: token {describe(text)} has id {wanted}, but in {path} it has {got}; write both again: "
                "`AutoTokenizer.from_pretrained(FOLDER).save_pretrained(FOLDER)`"
            )
    return tokenizer.to_str(pretty=False).encode("utf-8") if missing else data


def _declared(sidecars: Sidecars, specials: set[str]) -> Iterator[tuple[str, tuple[int, AddedToken]]]:
    """Text -> (id, token), for every token that a file gives an id."""
    if not sidecars.decoder:
        for text in sidecars.added:
            if not is_unicode(text) or not text:
                raise CheckpointError(
                    f"{sidecars.added.where}: {text[:80]!r}: got no token's text, expected one in UTF-8"
                )
            index = sidecars.added.whole(text, least=0)
            yield text, (index, AddedToken(text, normalized=text not in specials, special=text in specials))
        return
    decoder = sidecars.config.object("added_tokens_decoder")
    for index_text in decoder:
        token = _token(decoder, index_text)
        if token is None or not isinstance(decoder[index_text], Mapping):
            raise decoder.fault(index_text, "an object with a token's content")
        if not re.fullmatch(r"[0-9]{1,10}", index_text):
            raise CheckpointError(f"{decoder.where}: {decoder.name(index_text[:80])!r}: expected the id of a token")
        yield token.content, (int(index_text), token)


def _specials(sidecars: Sidecars) -> Iterator[AddedToken]:
    """Tokens that have a name or stand in a list of specials; no file need give them an id."""
    names = sidecars.names()
    further = [key for key in names if key.endswith("_token") and key not in NAMED]
    for key in (*NAMED, *further):
        # what else ends so is a setting ("add_bos_token")
        if key in names and (key in NAMED or isinstance(names[key][key], str | Mapping)):
            yield from _special(names[key], key)
    for key in _LISTS:
        if key in names:
            group = _items(names[key], key)
            for item in group:
                yield from _special(group, item)


def _items(file: Fields, key: str) -> Fields:
    """The members of a list or an object, under names that a message can say."""
    value = file[key]
    if isinstance(value, list):
        return Fields({f"{key}[{i}]": item for i, item in enumerate(value)}, file.where)
    return file.object(key)


def _special(file: Fields, key: str) -> Iterator[AddedToken]:
    token = _token(file, key)
    if token is not None:
        token.special = True
        yield token


def _token(file: Fields, key: str) -> AddedToken | None:
    """A token that a file gives plainly as its text, or as an object; None for null and for an empty text."""
    value = file.get(key)
    if isinstance(value, Mapping):
        parts = file.object(key)
        flags = {flag: parts.flag(flag) for flag in _FLAGS if parts.get(flag) is not None}
        text = parts.text("content")
        return AddedToken(text, **flags) if text else None
    if value is not None and not isinstance(value, str):
        raise file.fault(key, "a token: its text, or an object with its content")
    text_alone = file.text_or_none(key)
    return AddedToken(text_alone) if text_alone else None


def _differs(token: AddedToken, known: Mapping[str, AddedToken]) -> bool:
    return token.content not in known or repr(known[token.content]) != repr(token)
