"""What a sequence asks of the device: bindings, addresses, graphs, profiles and bytes, step by step."""

from __future__ import annotations

import gc

import numpy as np
import pytest

from foredraft.bundle import Bundle
from foredraft.engines.cuda.layout import input_block
from foredraft.engines.onnxruntime import OnnxRuntimeEngine
from foredraft.engines.protocol import WINDOW, Batch
from foredraft.loop.chain import Chain
from foredraft.sampling.logits import dense
from foredraft_graphs.tensorrt_lowering import TOP
from tests.runtime.engines.made import opened

LAYERS = [1, 1, 2]
TOP_ROW = TOP * (4 + 4) + 4
"""Bytes of a row's highest logits, their tokens, and the total."""
TEXT = [(11 * n * n + 5) % 250 for n in range(300)]


def chain(engine: object, slots: int = 420) -> Chain:
    return Chain(engine.open_sequence(slots), LAYERS)  # type: ignore[attr-defined]


def batch(rows: int, n_past: int = 0) -> Batch:
    """A bush: rows nodes that see the past and themselves."""
    slots = np.arange(n_past, n_past + rows, dtype=np.int32)
    mask = np.zeros((rows, WINDOW // 32), np.uint32)
    for row in range(rows):
        mask[row, row // 32] = 1 << row % 32
    tokens = np.array(TEXT[:rows], np.int32)
    return Batch(tokens, np.full(rows, n_past, np.int32), slots, n_past, mask.view(np.int32))


def test_every_tensor_is_bound_once_and_stays_where_it_is(tiny: Bundle) -> None:
    engine, _, trt = opened(tiny)
    running = chain(engine)
    seen: dict[int, dict[str, int]] = {}
    for size in (5, 1, 40, 1, 5, 200, 1):
        running.prefill(TEXT[:size])
        for loaded in trt.engines:
            for context in loaded.contexts:
                assert set(context.addresses) == {loaded.get_tensor_name(i) for i in range(loaded.num_io_tensors)}
                assert seen.setdefault(id(context), dict(context.addresses)) == context.addresses
    segments = trt.engines[:3]
    for loaded in segments:
        (shared,) = {tuple(sorted(_caches(context.addresses).items())) for context in loaded.contexts}
        for name, address in shared:
            assert dict(shared)[f"{name.removesuffix('_out')}_out"] == address, "updated in place"
    heads = {context.addresses["head"] for context in trt.engines[3].contexts}
    assert len(heads) == 1 and heads == {engine.weights["head"]}


def _caches(addresses: dict[str, int]) -> dict[str, int]:
    return {name: address for name, address in addresses.items() if name.startswith(("key_", "value_"))}


def test_a_graph_is_captured_once_for_each_number_of_rows_and_then_replayed(tiny: Bundle) -> None:
    engine, cuda, trt = opened(tiny)
    sequence = engine.open_sequence(420)
    for rows in (1, 3, 4, 1, 2, 4, 33, 64):
        sequence.run(0, batch(rows))
    made = {rows for context in trt.engines[0].contexts for rows in context.shapes["positions"]}
    assert made == {1, 2, 4, 64}
    assert cuda.calls["cuGraphInstantiate"] == 4
    assert cuda.calls["cuGraphLaunch"] == 4  # 1, 4, 4 (for 3 rows, then again) and 64 came a second time
    assert all(context.runs == 2 for context in trt.engines[0].contexts), "as it is, and in the capture"


@pytest.mark.parametrize(
    ("rows", "padded", "profile"), [(1, 1, 0), (33, 64, 0), (64, 64, 0), (65, 128, 1), (256, 256, 1)]
)
def test_profiles_change_at_65_rows(tiny: Bundle, rows: int, padded: int, profile: int) -> None:
    engine, cuda, trt = opened(tiny)
    engine.open_sequence(420).run(0, batch(rows))
    (context,) = trt.engines[0].contexts
    assert (context.shapes["positions"], context.profile) == ((padded,), profile)
    assert cuda.calls["cuStreamBeginCapture"] == (profile == 0), "long forwards are not captured"


def test_bytes_that_cross_over(tiny: Bundle) -> None:
    engine, cuda, _ = opened(tiny)
    running = chain(engine)
    running.prefill(TEXT[:20])
    cuda.bytes.clear()
    running.verify(running.arena.extend(TEXT[:3], [running.arena.used - 1] * 3))
    assert cuda.bytes == {"to device": 3 * input_block(4)[1] + 4 * 4, "to host": 3 * TOP_ROW}
    cuda.bytes.clear()
    running.commit([running.arena.used - 1])  # from slot 22 to slot 20
    running.logits(np.zeros(1, np.int32))
    assert cuda.bytes["on device"] == 0, "caches are never copied"
    assert cuda.bytes["to host"] == TOP_ROW


def test_rows_beyond_a_batch_touch_the_last_row_only(tiny: Bundle) -> None:
    engine, cuda, _ = opened(tiny)
    sequence = engine.open_sequence(100)
    sequence.run(0, batch(3, n_past=4))
    sequence.readout(np.arange(3))
    layout = sequence._memory.layout
    written = set()
    for plane in layout.plane_offsets()[:2]:  # the layer of the first segment
        rows = cuda.view(sequence._memory.caches.address + plane, layout.slots * layout.row).reshape(layout.slots, -1)
        written |= set(np.flatnonzero(rows.any(1)).tolist())
    assert written == {4, 5, 6, layout.slots - 1} and sequence.slots == layout.slots - 1 == 100


def test_moved_and_copied_rows_count_like_their_own(tiny: Bundle) -> None:
    engine, _, _ = opened(tiny)
    expected = chain(engine)
    expected.prefill(TEXT[:30])
    running = chain(engine)
    running.prefill(TEXT[:20])
    tip = running.arena.used - 1
    others = running.arena.extend([1] * 9, [tip] * 9)
    path = running.arena.extend(TEXT[20:30], [tip, *range(others[-1] + 1, others[-1] + 10)])
    running.verify(np.concatenate([others, path]))
    running.commit(path.tolist())
    assert running.work.rows_moved == 10
    copied = chain(engine)
    copied.copy_settled(running, 30)
    running.arena.rewind(0)
    running.prefill(TEXT[100:140])  # the other one's rows are its own
    assert np.array_equal(dense(expected.prefill([7])), dense(copied.prefill([7])))


@pytest.mark.parametrize("form", ["plugin", "native"])
def test_logits_readout_and_rows_of_a_batch(tiny: Bundle, native: Bundle, form: str) -> None:
    bundle = tiny if form == "plugin" else native
    results = []
    for engine in (opened(bundle)[0], OnnxRuntimeEngine(bundle, 1)):
        running = chain(engine)
        running.prefill(TEXT[:20])
        tip = running.arena.used - 1
        slots = running.arena.extend(TEXT[:70], [tip, tip, *range(tip + 1, tip + 69)])
        running.advance(slots[[0, 1, 3, 5]], 1)  # so that the others have gaps between them
        running.advance(slots, 3)
        rows = np.array([69, 0, 33, 5], np.int32)
        sequence = running._sequence
        every = [dense(sequence.logits(np.arange(70, dtype=np.int32))).copy() for _ in range(2)]
        results.append((dense(running.logits(rows)).copy(), sequence.readout(rows), *every))
    for ours, theirs in zip(*results, strict=True):
        assert ours.shape == theirs.shape
        assert np.abs(ours - theirs).max() < 0.1


@pytest.mark.parametrize("form", ["plugin", "native"])
def test_moves_follow_one_another(tiny: Bundle, native: Bundle, form: str) -> None:
    engine, cuda, _ = opened(tiny if form == "plugin" else native)
    sequence = engine.open_sequence(100)
    for segment in range(3):
        sequence.run(segment, batch(12))
    sequence.readout(np.arange(12))
    memory = sequence._memory
    blocks = [(memory.caches.address + plane, memory.layout.row) for plane in memory.layout.plane_offsets()]
    blocks += [(hidden.address, memory.width) for hidden in memory.hidden]
    rows = [cuda.view(address, 12 * width).reshape(12, width) for address, width in blocks]
    expected = [block.copy() for block in rows]
    for source, target in (([4, 6, 7], [3, 4, 5]), ([8], [6]), ([10, 11], [7, 8])):
        sequence.move(np.array(source, np.int32), np.array(target, np.int32))
        for block in expected:
            block[target] = block[source]
    memory.stream.wait()
    for block, wanted in zip(rows, expected, strict=True):
        assert np.array_equal(block, wanted)


def test_the_head_that_drafts_knows_its_own_tokens(tiny: Bundle) -> None:
    results = []
    for engine in (opened(tiny)[0], OnnxRuntimeEngine(tiny, 1)):
        sequence = engine.open_sequence(100)
        sequence.run(0, batch(5))
        results.append(dense(sequence.draft_logits(np.array([4, 1], np.int32))))
    ours, theirs = results
    known = np.isfinite(theirs)
    assert np.array_equal(np.isfinite(ours), known) and known.sum() == 2 * 128
    assert np.abs(ours[known] - theirs[known]).max() < 0.1


def test_a_sequences_memory_is_freed_with_it(tiny: Bundle) -> None:
    engine, cuda, _ = opened(tiny)
    before = cuda.taken
    gc.disable()
    try:
        running = chain(engine)
        running.prefill(TEXT[:70])
        logits = dense(running.logits(np.arange(70, dtype=np.int32)))
        copy = logits.copy()
        assert cuda.taken > before
        del running
        assert cuda.taken == before
        assert np.array_equal(logits, copy), "a view of pinned memory keeps it"
    finally:
        gc.enable()


def test_a_sequence_outlives_the_engines_last_name(tiny: Bundle) -> None:
    engine, _, _ = opened(tiny)
    sequence = engine.open_sequence(100)
    del engine
    sequence.run(0, batch(3))
    assert np.isfinite(sequence.readout(np.arange(3))).all(), "the weights are still there"


def test_other_buckets(tiny: Bundle) -> None:
    """One number of rows for all forwards of a few nodes: what shares a forward then changes no kernel."""
    engine, _, trt = opened(tiny, buckets=(16, 256))
    sequence = engine.open_sequence(420)
    for rows in (1, 7, 16, 17):
        sequence.run(0, batch(rows))
    assert [context.shapes["positions"] for context in trt.engines[0].contexts] == [(16,), (256,)]
