"""Keeps control tokens that users spell from becoming control tokens (``split_special_tokens`` of transformers).

A second tokenizer is made from the same tokenizer.json, whose special tokens are spelled in a way that nobody can
guess. A prompt is written with its users' spellings covered, what the template then spells is spelled anew, and the
covers are taken off: only the template's tokens are tokens.
"""

from __future__ import annotations

import json
import re
import secrets
from typing import Any

import tokenizers

from foredraft.errors import RequestError

_COVER, _OPEN, _CLOSE = "\U000f0000", "\U000f0001", "\U000f0002"
"""Of a private use area, which no normalizer changes."""


class SpecialTokenGuard:
    """Made from a tokenizer.json that can be read; safe to share by threads."""

    def __init__(self, data: str) -> None:
        value: dict[str, Any] = json.loads(data)
        self._nonce = f"{secrets.randbelow(10**18):018}"
        special = [token for token in value.get("added_tokens") or [] if token["special"] and token["content"]]
        self._texts = [str(token["content"]) for token in special]
        ids = [int(token["id"]) for token in special]
        for place, token in enumerate(special):
            token["content"] = self._secret(place)
        _respell(value, {text: self._secret(place) for place, text in enumerate(self._texts)})
        self._backend = tokenizers.Tokenizer.from_str(json.dumps(value))
        found = [self._backend.token_to_id(self._secret(place)) for place in range(len(ids))]
        self._ids = dict(zip(found, ids, strict=True))
        self._places = {text: place for place, text in enumerate(self._texts)}
        longest_first = sorted(self._texts, key=len, reverse=True)
        self._spelled = re.compile("|".join(map(re.escape, longest_first)) or r"(?!)")
        self._covered = re.compile(f"{_COVER}{self._nonce}(\\d+){_CLOSE}")

    def cover(self, text: str) -> str:
        """``text`` with the special tokens that it spells covered; a template can be given it."""
        return self._spelled.sub(lambda found: f"{_COVER}{self._nonce}{self._places[found[0]]}{_CLOSE}", text)

    def encode(self, prompt: str) -> list[int]:
        """Ids of a prompt with covers: what is spelled in it becomes tokens, what was covered is plain text.

        Raises RequestError if a template changed the covers.
        """
        if prompt.count(self._nonce) != len(self._covered.findall(prompt)):
            raise RequestError(
                "split_special_tokens: this model's chat template changes the letters of messages, so that special "
                "tokens in them cannot be told from its own; leave them out of the messages"
            )
        respelled = self._spelled.sub(lambda found: self._secret(self._places[found[0]]), prompt)
        uncovered = self._covered.sub(lambda found: self._texts[int(found[1])], respelled)
        ids = self._backend.encode(uncovered, add_special_tokens=False).ids
        return [self._ids.get(token, token) for token in ids]

    def _secret(self, place: int) -> str:
        return f"{_OPEN}{self._nonce}{place}{_CLOSE}"


def _respell(value: dict[str, Any], names: dict[str, str]) -> None:
    """Give tokens of a tokenizer.json other names, in place; what only touches whole texts is left out."""
    value |= {"post_processor": None, "padding": None, "truncation": None}
    model = value["model"]
    vocabulary = model.get("vocab")
    if isinstance(vocabulary, dict):
        model["vocab"] = {names.get(text, text): index for text, index in vocabulary.items()}
    elif isinstance(vocabulary, list):
        model["vocab"] = [[names.get(text, text), score] for text, score in vocabulary]
    if "merges" in model:
        model["merges"] = [merge for merge in model["merges"] if _merged(merge) not in names]
    if model.get("unk_token") in names:
        model["unk_token"] = names[model["unk_token"]]


def _merged(merge: str | list[str]) -> str:
    """What a merge makes; older files write its halves with a space between them."""
    return "".join(merge) if isinstance(merge, list) else merge.replace(" ", "", 1)
