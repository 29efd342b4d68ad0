"""Small tokenizers of the kinds that models have, as the bytes of a tokenizer.json."""

from __future__ import annotations

from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

WORDS = ["the", "a", "cat", "stop", "st", "op", "END", "\n", "é", "你", "好", "🙂", ".", ",", "x"]


def byte_level() -> bytes:
    """GPT-2's kind: every token is bytes, so that characters may be split. 0 is the BOS, 1 an ordinary added
    token.
    """
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocab = {"<s>": 0, **{symbol: index + 1 for index, symbol in enumerate(alphabet)}}
    merges = [("t", "h"), ("th", "e"), ("s", "t"), ("o", "p"), ("Ġ", "a"), ("ð", "Ł"), ("ä", "½")]
    for left, right in merges:
        vocab.setdefault(left + right, len(vocab))
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return _finished(tokenizer)


def sentencepiece() -> bytes:
    """Llama 2's kind: ▁ for spaces, the text's first one stripped, bytes where there is no token."""
    tokenizer = Tokenizer(models.BPE(vocab=_pieces(), merges=[], byte_fallback=True, unk_token="<unk>"))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    return _finished(tokenizer)


def metaspace() -> bytes:
    """T5's kind: ▁ for spaces, no bytes."""
    tokenizer = Tokenizer(models.Unigram([(piece, -1.0) for piece in _pieces()], unk_id=1, byte_fallback=False))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    return _finished(tokenizer)


def wordpiece() -> bytes:
    """BERT's kind: a space before each token but those that begin with ##."""
    vocab = ["<s>", "<unk>", *WORDS, *("##" + word for word in WORDS)]
    tokenizer = Tokenizer(models.WordPiece({word: index for index, word in enumerate(vocab)}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.decoder = decoders.WordPiece()
    return _finished(tokenizer)


def _pieces() -> dict[str, int]:
    pieces = ["<s>", "<unk>", *(f"<0x{byte:02X}>" for byte in range(256)), "▁", "▁▁", "�", *WORDS]
    pieces += ["▁" + word for word in WORDS]
    return {piece: index for index, piece in enumerate(dict.fromkeys(pieces))}


def _finished(tokenizer: Tokenizer) -> bytes:
    tokenizer.add_special_tokens([AddedToken("<s>", special=True), AddedToken("<|end|>", special=True)])
    tokenizer.add_tokens([AddedToken("<tool>", special=False)])
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 0)])
    tokenizer.enable_truncation(5)
    tokenizer.enable_padding(length=8, pad_token="<s>")
    return tokenizer.to_str().encode()


KINDS = {
    "byte_level": byte_level(),
    "sentencepiece": sentencepiece(),
    "metaspace": metaspace(),
    "wordpiece": wordpiece(),
}
