"""Counting on a cluster: the same file as counting here."""

from __future__ import annotations

from pathlib import Path

import pytest
import ray

from foredraft.databases.merge import merge_files
from foredraft.databases.shards import count_files
from tests.runtime.tokenizers_for_tests import byte_level

pytestmark = pytest.mark.slow


def test_shards_counted_by_ray_merge_to_the_same_database(tmp_path: Path) -> None:
    tokenizer = tmp_path / "tokenizer.json"
    tokenizer.write_bytes(byte_level())
    texts = [tmp_path / f"{name}.txt" for name in "abc"]
    for number, path in enumerate(texts):
        path.write_text("the cat stops\n" * (number + 1) + path.name, encoding="utf-8")
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, configure_logging=False)
    try:
        count = ray.remote(lambda text: (count_files(f"{text}.fdc", [text], tokenizer), f"{text}.fdc")[1])
        shards = ray.get([count.remote(text) for text in texts])
    finally:
        ray.shutdown()
    merge_files(tmp_path / "ray.fdb", shards)
    count_files(tmp_path / "all.fdc", texts, tokenizer)
    merge_files(tmp_path / "here.fdb", [tmp_path / "all.fdc"])
    assert (tmp_path / "ray.fdb").read_bytes() == (tmp_path / "here.fdb").read_bytes()
