"""Tied embeddings are decided by the tensors that are there; a config that says otherwise is an error."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from safetensors.numpy import load_file, save_file

from foredraft.errors import CheckpointError
from foredraft_exporter.sources.checkpoint import open_checkpoint
from tests.fixtures import tiny_checkpoint, tiny_gguf


def _folder(path: Path, head: str, **config: Any) -> Path:
    folder = tiny_checkpoint(path, **config)
    tensors = load_file(folder / "model.safetensors")
    tensors.pop("lm_head.weight", None)
    if head == "same":
        tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"]
    if head == "other":
        tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"] + 1
    save_file(tensors, folder / "model.safetensors")
    return folder


@pytest.mark.parametrize(("flag", "head", "tied"), [
    (True, "none", True), (True, "same", True), (False, "same", True), (False, "other", False),
    (None, "none", True), (None, "other", False), (None, "same", True),
])  # fmt: skip
def test_the_tensors_decide(tmp_path: Path, flag: bool | None, head: str, tied: bool) -> None:
    checkpoint = open_checkpoint(_folder(tmp_path / "m", head, tie_word_embeddings=flag))
    assert checkpoint.info.config["tie_word_embeddings"] is tied
    assert ("lm_head.weight" in checkpoint.names()) is not tied


@pytest.mark.parametrize(("flag", "head"), [(True, "other"), (False, "none")])
def test_a_contradiction_names_both(tmp_path: Path, flag: bool, head: str) -> None:
    with pytest.raises(CheckpointError, match=r"tie_word_embeddings.*lm_head\.weight"):
        open_checkpoint(_folder(tmp_path / "m", head, tie_word_embeddings=flag))


@pytest.mark.parametrize("tied", [True, False])
def test_gguf_without_output_is_tied(tmp_path: Path, tied: bool) -> None:
    checkpoint = open_checkpoint(tiny_gguf(tmp_path / "m.gguf", tie_word_embeddings=tied))
    assert checkpoint.info.config["tie_word_embeddings"] is tied
