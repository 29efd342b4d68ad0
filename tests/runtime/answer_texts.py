"""What an answer's text must be, said without streaming: from ``decode`` of all ids alone."""

from __future__ import annotations

import itertools
import json

from tokenizers import AddedToken, decoders, models, pre_tokenizers
from tokenizers import Tokenizer as Backend

from foredraft.text import Tokenizer
from tests.runtime.tokenizers_for_tests import KINDS


def _with_decoder(kind: str, decoder: decoders.Decoder | None) -> bytes:
    """One of the tokenizers for tests with another decoder."""
    value = json.loads(KINDS[kind])
    value["decoder"] = json.loads(decoder.__getstate__()) if decoder is not None else None
    return json.dumps(value).encode()


def _spaces(*others: decoders.Decoder) -> decoders.Decoder:
    return decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), *others])


def _ends_of_words() -> bytes:
    """CLIP's kind: a mark where a word ends."""
    letters = "abcdefghijklmnopqrstuvwxyz"
    vocab = {
        "<s>": 0,
        **{letter + end: 1 + place for place, (letter, end) in enumerate(itertools.product(letters, ("", "</w>")))},
        "th": 53,
        "the</w>": 54,
    }
    tokenizer = Backend(models.BPE(vocab=vocab, merges=[("t", "h"), ("th", "e</w>")], end_of_word_suffix="</w>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.decoder = decoders.BPEDecoder(suffix="</w>")
    tokenizer.add_special_tokens([AddedToken("<s>", special=True), AddedToken("<|end|>", special=True)])
    return tokenizer.to_str().encode()


DECODERS = {
    **KINDS,
    "gemma": _with_decoder("sentencepiece", _spaces()),
    "strips two": _with_decoder("sentencepiece", _spaces(decoders.Strip(" ", 2, 0))),
    "bytes and metaspace": _with_decoder(
        "sentencepiece", decoders.Sequence([decoders.ByteFallback(), decoders.Metaspace()])
    ),
    "metaspace, first": _with_decoder("metaspace", decoders.Metaspace(prepend_scheme="first")),
    "metaspace, never": _with_decoder("metaspace", decoders.Metaspace(prepend_scheme="never")),
    "wordpiece as it is": _with_decoder("wordpiece", decoders.WordPiece(cleanup=False)),
    "ends of words": _ends_of_words(),
    "no decoder": _with_decoder("wordpiece", None),
}
TOKENIZERS = {name: Tokenizer(data, bos_id=0, add_bos=True) for name, data in DECODERS.items()}
BYTES, SPACES = TOKENIZERS["byte_level"], TOKENIZERS["sentencepiece"]


def text_of(tokenizer: Tokenizer, ids: list[int]) -> str:
    """``decode``, less a character at the end that further bytes would complete."""
    visible = [token for token in ids if not tokenizer.is_silent(token)]
    for count in range(1, min(3, len(visible)) + 1):
        end = visible[-count:]
        for more, length in itertools.product(_continuations(tokenizer), (1, 2, 3)):
            if "\ufffd" in tokenizer.decode(end) and "\ufffd" not in tokenizer.decode([*end, *[more] * length]):
                if tokenizer.is_byte(visible[-1]):
                    return tokenizer.decode(visible[:-count])
                return tokenizer.decode(visible)[:-1]
    return tokenizer.decode(ids)


def _continuations(tokenizer: Tokenizer) -> list[int]:
    """Tokens of one byte that goes on with a character, where there are such tokens."""
    last = [tokenizer.encode(text, add_bos=False)[-1:] for text in ("\x80", "\xa0")]
    return [token for ids in last for token in ids if tokenizer.decode(ids) == "\ufffd"]


def answer_text(tokenizer: Tokenizer, prompt: list[int], ids: list[int]) -> str:
    """What the answer adds to the prompt's text."""
    return text_of(tokenizer, prompt + ids)[len(text_of(tokenizer, prompt)) :]
