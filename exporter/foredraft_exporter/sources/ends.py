"""Which tokens end a text. The names are those that llama.cpp takes for ends (``llama-vocab.cpp``)."""

from __future__ import annotations

from collections.abc import Iterable

KNOWN_ENDS = frozenset({
    "<|eot_id|>", "<|eom_id|>", "<|im_end|>", "<|end|>", "<end_of_turn>", "<|endoftext|>", "<|end_of_text|>", "<EOT>",
    "_<EOT>", "[EOT]", "[EOS]", "<end_of_utterance>", "<\uff5cend\u2581of\u2581sentence\uff5c>",
})  # fmt: skip


def all_ends(first: int | None, declared: Iterable[int], whole: Iterable[tuple[int, str]]) -> list[int]:
    """Every end, once: ``first`` (the tokenizer's own, which templates write), then the others by id.

    ``declared`` are the ids that files name as ends; ``whole`` are the tokens that are never cut, with their texts, of
    which those of ``KNOWN_ENDS`` count.
    """
    others = {*declared, *(index for index, text in whole if text in KNOWN_ENDS)}
    return sorted(others) if first is None else [first, *sorted(others - {first})]
