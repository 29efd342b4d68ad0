"""A model's tokenizer (tokenizer.json). Knows nothing of chat, streaming or models."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import tokenizers

from foredraft.errors import BundleError, RequestError
from foredraft.text.special_tokens import SpecialTokenGuard


class Tokenizer:
    """Text to token ids and back; safe to share by threads.

    ``bos_id`` is the token that begins a text, or None; ``add_bos`` says whether the model wants it, and is
    the default of ``encode``. ``special_tokens`` maps the spelling of each special token to its id.
    Raises BundleError if ``data`` is not a tokenizer.json.
    """

    def __init__(self, data: bytes, bos_id: int | None = None, add_bos: bool = False) -> None:
        try:
            self._backend = tokenizers.Tokenizer.from_buffer(data)
        except Exception as error:  # the library raises plain Exception, with a message and nothing else
            raise BundleError(f"tokenizer.json: not a tokenizer that can be read ({error})") from error
        # Some files carry the padding and truncation of their training: both would change the user's text.
        self._backend.no_padding()
        self._backend.no_truncation()
        self.bos_id = bos_id
        self.add_bos = add_bos
        added = self._backend.get_added_tokens_decoder()
        self.special_tokens = {token.content: token_id for token_id, token in added.items() if token.special}
        self._special_ids = frozenset(self.special_tokens.values())
        self._byte_ids = self._find_byte_ids()

    @cached_property
    def guard(self) -> SpecialTokenGuard:
        """What covers special tokens in users' texts."""
        return SpecialTokenGuard(self._backend.to_str())

    @property
    def vocab_size(self) -> int:
        """Number of tokens, added ones included (a model's own vocabulary may be padded beyond it)."""
        return int(self._backend.get_vocab_size(with_added_tokens=True))

    def encode(self, text: str, add_bos: bool | None = None) -> list[int]:
        """Ids of ``text``; special tokens written out in it are recognised.

        What the tokenizer's own post-processor would add is left out. With ``add_bos`` (None: as the model
        wants it) the ids begin with exactly one BOS: it is not added again where the text, as many chat
        templates do, has it already. Raises RequestError if ``text`` is not a string of valid Unicode.
        """
        _check_text(text)
        return self._with_bos(self._backend.encode(text, add_special_tokens=False).ids, add_bos)

    def encode_covered(self, text: str, add_bos: bool | None = None) -> list[int]:
        """The same for a text in which ``guard`` covered some special tokens: these are split like other text."""
        _check_text(text)
        return self._with_bos(self.guard.encode(text), add_bos)

    def _with_bos(self, ids: list[int], add_bos: bool | None) -> list[int]:
        wanted = self.add_bos if add_bos is None else add_bos
        if wanted and self.bos_id is not None and ids[:1] != [self.bos_id]:
            ids.insert(0, self.bos_id)
        return ids

    def decode(self, ids: Sequence[int]) -> str:
        """Text of ``ids``; special tokens and ids outside the vocabulary have none."""
        return str(self._backend.decode(list(ids), skip_special_tokens=True))

    def token_text(self, token_id: int) -> str:
        """The token as the vocabulary spells it (``Ġthe``, ``<|im_end|>``), or an empty string if there is no
        such id.
        """
        return self._backend.id_to_token(token_id) or ""

    def is_silent(self, token_id: int) -> bool:
        """True if ``decode`` passes over the id: a special token, or none at all."""
        return token_id in self._special_ids or self._backend.id_to_token(token_id) is None

    def is_byte(self, token_id: int) -> bool:
        """True for a byte-fallback token (``<0xE4>``).

        ``decode`` reads a run of them as one: a malformed byte anywhere in the run turns all of it into
        U+FFFD.
        """
        return token_id in self._byte_ids

    def _find_byte_ids(self) -> frozenset[int]:
        probe = self._backend.token_to_id("<0x41>")
        if probe is None or self._backend.decode([probe]) != "A":
            return frozenset()  # no such tokens, or a decoder that takes them as they are spelt
        found = (self._backend.token_to_id(f"<0x{byte:02X}>") for byte in range(256))
        return frozenset(token_id for token_id in found if token_id is not None)


def _check_text(text: str) -> None:
    if not isinstance(text, str):
        raise RequestError(f"text: got {type(text).__name__}, expected a string")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise RequestError(f"text: not valid Unicode at character {error.start} (a lone surrogate)") from None
