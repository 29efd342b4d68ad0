"""A model's tokenizer, ends and chat template, checked before any weight is read. What is odd but harmless is said."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass

from tokenizers import Tokenizer as Backend

from foredraft.bundle.manifest import TokenizerInfo
from foredraft.errors import BundleError, CheckpointError
from foredraft.text import ChatTemplate, Tokenizer
from foredraft_exporter.sources.checkpoint import Checkpoint, CheckpointInfo

_NAMED = 5
"""So many tokens are named in a message."""


@dataclass(frozen=True, slots=True)
class TextFiles:
    """What a bundle holds for text. ``warnings`` are sentences for whoever exports."""

    tokenizer_json: bytes
    tokenizer: TokenizerInfo
    chat_template: str | None
    warnings: tuple[str, ...]


def read_text_files(checkpoint: Checkpoint, vocab_size: int) -> TextFiles:
    """Raises CheckpointError for a tokenizer or a chat template that cannot serve a model of ``vocab_size`` tokens."""
    info, data = checkpoint.info, checkpoint.tokenizer_json()
    try:
        tokenizer = Tokenizer(data)
    except BundleError as error:
        raise CheckpointError(f"{info.origins['tokenizer']}: {error}; download it again") from error
    beyond = list(_beyond(info.origins["tokenizer"], data, vocab_size))
    generation = info.generation
    bos, ends = generation["bos_token_id"], generation["eos_token_ids"]
    known = bos is not None and 0 <= bos < vocab_size
    if generation["add_bos"] and not known:
        raise CheckpointError(
            f"{info.origins['bos_token_id']}: prompts begin with id {bos}, but the model knows ids 0 to "
            f"{vocab_size - 1}; correct it"
        )
    written = TokenizerInfo(
        sha256=hashlib.sha256(data).hexdigest(),
        vocab_size=tokenizer.vocab_size,
        bos_id=bos if known else None,
        eos_ids=tuple(end for end in ends if 0 <= end < vocab_size),
        add_bos=generation["add_bos"],
    )
    warnings = [
        *beyond,
        *_ends(written, ends, vocab_size),
        *_template(info, tokenizer, written),
    ]
    return TextFiles(data, written, info.chat_template, tuple(warnings))


def _beyond(where: str, data: bytes, vocab_size: int) -> Iterator[str]:
    """Added tokens may lie beyond the model's: a ``[PAD]`` that training added and nothing ever writes."""
    backend = Backend.from_buffer(data)
    beyond = {index: text for text, index in backend.get_vocab(with_added_tokens=True).items() if index >= vocab_size}
    if not beyond:
        return
    own = beyond.keys() - backend.get_added_tokens_decoder().keys()
    if own:
        raise CheckpointError(
            f"{where}: the tokenizer has {backend.get_vocab_size(with_added_tokens=True)} tokens, the model "
            f"{vocab_size}, and {beyond[min(own)]!r} (id {min(own)}) is none that was added later; they are not of "
            "the same model: use the tokenizer that the model was trained with"
        )
    named = ", ".join(f"{beyond[index]!r} ({index})" for index in sorted(beyond)[:_NAMED])
    more = f" and {len(beyond) - _NAMED} more" if len(beyond) > _NAMED else ""
    yield (
        f"the tokenizer has tokens that the model has not: {named}{more}; "
        f"a prompt that holds one is refused, the model knows ids 0 to {vocab_size - 1}"
    )


def _ends(written: TokenizerInfo, declared: list[int], vocab_size: int) -> Iterator[str]:
    lost = [end for end in declared if end not in written.eos_ids]
    if lost:
        yield f"eos_token_id {', '.join(map(str, lost))}: left out, the model knows ids 0 to {vocab_size - 1}"
    if not written.eos_ids:
        yield (
            "no token ends a text: answers go on until max_tokens or a stop string. If the model has an end, name it "
            "as eos_token_id in generation_config.json and export again"
        )


def _template(info: CheckpointInfo, tokenizer: Tokenizer, written: TokenizerInfo) -> Iterator[str]:
    if info.chat_template is None:
        return
    names = [tokenizer.token_text(index) if index is not None else "" for index in (written.bos_id, _first(written))]
    try:
        traits = ChatTemplate(info.chat_template, *names).traits
    except BundleError as error:
        raise CheckpointError(f"{info.origins['chat_template']}: {error}") from error
    if not traits.system:
        yield "the chat template leaves out system messages: what they say does not reach the model"


def _first(written: TokenizerInfo) -> int | None:
    return written.eos_ids[0] if written.eos_ids else None
