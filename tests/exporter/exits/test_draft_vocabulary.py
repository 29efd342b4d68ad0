"""Which tokens a draft vocabulary holds, and when there is one."""

from __future__ import annotations

import json

import numpy as np
import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from foredraft.errors import ForedraftError
from foredraft_exporter.exits.draft_vocabulary import AUTO_SIZE, choose_ids, default_order, draft_size
from foredraft_exporter.models import decoder
from foredraft_exporter.sources.checkpoint import open_checkpoint
from tests.exporter.exits.helpers import LAYERSKIP
from tests.fixtures import byte_alphabet, byte_tokenizer


def merged_tokenizer() -> bytes:
    """Bytes, then three merges whose ids do not follow their rank."""
    vocabulary = {c: i for i, c in enumerate(byte_alphabet())} | {"th": 258, "the": 256, "an": 257}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[("t", "h"), ("a", "n"), ("th", "e")]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(["<s>"])
    return tokenizer.to_str().encode()


def test_merges_follow_single_symbols_by_rank() -> None:
    order = default_order(merged_tokenizer(), 272)
    assert sorted(order) == list(range(272))
    assert set(order[:256]) == set(range(256))
    assert order[256:259] == [258, 257, 256]


def test_other_vocabularies_go_by_id() -> None:
    assert default_order(byte_tokenizer().to_str().encode(), 272) == list(range(272))
    unigram = json.dumps({"model": {"type": "Unigram", "vocab": []}}).encode()
    assert default_order(unigram, 5) == [0, 1, 2, 3, 4]


def test_measured_tokens_come_first_and_specials_always() -> None:
    ids = choose_ids(merged_tokenizer(), 4, 272, eos_ids=[270], texts=["thethethe zz", "zz"])
    assert ids.tolist() == sorted([270, 259, ord("z"), 256])
    assert ids.dtype == np.int32
    assert len(choose_ids(merged_tokenizer(), 300, 272, [270])) == 272


def test_real_merges_are_more_frequent_than_rare_ones() -> None:
    checkpoint = open_checkpoint(LAYERSKIP)
    ids = choose_ids(checkpoint.tokenizer_json(), 512, 2048, [0])
    assert 0 in ids
    assert ids.tolist() == sorted(set(range(512)))


def sized(vocab: int, hidden: int = 64) -> object:
    config = dict(open_checkpoint(LAYERSKIP).info.config)
    return decoder(config | {"vocab_size": vocab, "hidden_size": hidden})


def test_auto_is_by_cost() -> None:
    big, small = sized(49152), sized(8192)
    assert draft_size("auto", big, (2,)) == AUTO_SIZE  # type: ignore[arg-type]
    assert draft_size("auto", big, ()) == 0  # type: ignore[arg-type]
    assert draft_size("auto", small, (2,)) == 0  # type: ignore[arg-type]
    deep = decoder(dict(open_checkpoint(LAYERSKIP).info.config) | {"vocab_size": 16384, "intermediate_size": 1024})
    assert [draft_size("auto", deep, (exit_,)) for exit_ in (2, 15)] == [AUTO_SIZE, 0]


@pytest.mark.parametrize(
    ("asked", "exits", "says"),
    [("0", (2,), "expected 1"), (9000, (2,), "8192 tokens"), ("many", (2,), "auto or none"), ("64", (), "--exits")],
)
def test_sizes_are_checked(asked: str | int, exits: tuple[int, ...], says: str) -> None:
    with pytest.raises(ForedraftError, match=says):
        draft_size(asked, sized(8192), exits)  # type: ignore[arg-type]


def test_sizes_are_whole_tiles() -> None:
    small = sized(8192)
    assert draft_size("33", small, (2,)) == 64  # type: ignore[arg-type]
    assert draft_size("none", small, (2,)) == 0  # type: ignore[arg-type]
