"""What a head brings to the host: the highest logits of a row, and all of them only where that is asked for."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from foredraft import SamplingParams, Session
from foredraft.bundle import Bundle
from foredraft.engines.protocol import EngineSequence
from foredraft.errors import EngineError
from foredraft.sampling.logits import PartialRow, dense, log_total
from foredraft.sampling.picking import pick
from foredraft_graphs.tensorrt_lowering import TOP
from tests.runtime.engines.made import opened, tiny_engines
from tests.runtime.engines.test_sequence import TOP_ROW, batch

PROMPT = [1, 17, 93, 4, 250, 17, 93]


def after(sequence: EngineSequence, rows: int) -> EngineSequence:
    """The sequence once all segments ran on so many nodes."""
    for segment in range(3):
        sequence.run(segment, batch(rows))
    return sequence


def numbers(*rows: int) -> np.ndarray:
    return np.array(rows, np.int32)


@pytest.mark.parametrize("draft", [False, True])
def test_a_top_is_what_is_highest_of_the_whole_row(tiny: Bundle, draft: bool) -> None:
    engine, _, _ = opened(tiny)
    sequence = after(engine.open_sequence(100), 9)
    read = sequence.draft_logits if draft else sequence.logits
    rows = [*read(numbers(8, 0, 3))]
    for row, whole in zip(rows, dense(read(numbers(8, 0, 3))), strict=True):
        assert isinstance(row, PartialRow) and len(row.ids) == TOP and row.vocab_size == len(whole)
        assert np.all(np.diff(row.ids) > 0) and np.array_equal(row.values, whole[row.ids])
        assert row.ceiling == row.values.min() >= np.delete(whole, row.ids).max()
        assert log_total(row) == pytest.approx(log_total(whole), abs=1e-5)
        if draft:
            assert engine.draft_ids is not None and set(row.ids) <= set(engine.draft_ids)
            assert np.array_equal(np.flatnonzero(np.isfinite(whole)), engine.draft_ids)


def test_a_head_of_fewer_tokens_than_a_top_leaves_none_out(tmp_path: Path) -> None:
    engine, cuda, _ = opened(Bundle.open(tiny_engines(tmp_path, draft_vocab=TOP - 24)))
    sequence = after(engine.open_sequence(100), 3)
    row = sequence.draft_logits(numbers(1))[0]
    assert isinstance(row, PartialRow) and row.ceiling == -np.inf
    cuda.bytes.clear()
    assert np.array_equal(row.ids, engine.draft_ids) and np.array_equal(row.whole()[row.ids], row.values)
    assert np.isneginf(np.delete(row.whole(), row.ids)).all()
    assert cuda.bytes["to host"] == 0, "all of it is there"


def test_a_head_runs_as_a_graph_from_the_second_time_on(tiny: Bundle) -> None:
    engine, cuda, _ = opened(tiny)
    sequence = after(engine.open_sequence(100), 9)
    cuda.calls.clear()
    first, *others = [list(sequence.logits(numbers(6, 2, 8))) for _ in range(3)]
    assert (cuda.calls["cuGraphInstantiate"], cuda.calls["cuGraphLaunch"]) == (1, 2)
    for rows in others:
        for row, same in zip(rows, first, strict=True):
            assert np.array_equal(row.ids, same.ids) and np.array_equal(row.values, same.values)


def test_a_logit_that_is_no_number_is_seen_though_the_top_may_hide_it(tiny: Bundle) -> None:
    engine, cuda, _ = opened(tiny)
    width = 2 * tiny.manifest.model.hidden_size
    cuda.view(engine.weights["head"] + 7 * width, width).view(np.float16)[:] = np.nan
    row = after(engine.open_sequence(100), 3).logits(numbers(1))[0]
    with pytest.raises(EngineError, match=r"position 5: the largest logit \(token 7\) is nan"):
        pick(row, 5, [], SamplingParams())


def test_only_the_top_crosses_over_and_a_whole_row_when_it_is_asked_for(tiny: Bundle) -> None:
    engine, cuda, _ = opened(tiny)
    sequence = after(engine.open_sequence(100), 9)
    sequence.logits(numbers(2, 3))  # captures
    cuda.bytes.clear()
    waits = sequence._memory.stream.waits
    rows = sequence.logits(numbers(5, 6))
    assert cuda.bytes["to host"] == 2 * TOP_ROW and sequence._memory.stream.waits == waits + 1
    whole = rows[1].whole()
    assert cuda.bytes["to host"] == 2 * TOP_ROW + 4 * tiny.manifest.model.vocab_size
    assert np.array_equal(whole[rows[1].ids], rows[1].values)


def test_a_row_outlives_the_next_run_but_cannot_be_fetched_then(tiny: Bundle) -> None:
    sequence = after(opened(tiny)[0].open_sequence(100), 9)
    row = sequence.logits(numbers(5))[0]
    kept = row.values.copy()
    sequence.logits(numbers(1))
    assert np.array_equal(row.values, kept)
    with pytest.raises(EngineError, match="row 0 was asked for after the head had run again"):
        row.whole()


def test_more_rows_than_one_run_takes_come_whole(tiny: Bundle) -> None:
    sequence = after(opened(tiny)[0].open_sequence(420), 100)
    every = np.arange(100, dtype=np.int32)
    assert isinstance(sequence.logits(every), np.ndarray)
    one = [dense(sequence.logits(numbers(row)))[0] for row in (0, 63, 64, 99)]
    assert np.array_equal(dense(sequence.logits(every))[[0, 63, 64, 99]], np.stack(one))
    drafted = dense(sequence.draft_logits(every))
    assert np.array_equal(drafted[70], dense(sequence.draft_logits(numbers(70)))[0])


def test_greedy_text_needs_no_whole_row(tiny: Bundle) -> None:
    engine, cuda, _ = opened(tiny)
    sizes = {"to host": 4 * tiny.manifest.model.vocab_size}
    copies = _spied(cuda)
    session = Session(tiny, engine=engine, policy="hispec")
    session.generate(PROMPT, max_tokens=20)
    assert sizes["to host"] not in copies and copies
    copies.clear()
    session.generate(PROMPT, max_tokens=20, sampling=SamplingParams(temperature=1.0, top_p=0.9))
    assert sizes["to host"] in copies


def _spied(cuda: object) -> list[int]:
    """Sizes of the copies to the host from now on."""
    copies: list[int] = []
    copy = cuda.cuMemcpyDtoHAsync  # type: ignore[attr-defined]

    def spy(target: int, source: int, size: int, stream: object) -> object:
        copies.append(size)
        return copy(target, source, size, stream)

    cuda.cuMemcpyDtoHAsync = spy  # type: ignore[attr-defined]
    return copies
