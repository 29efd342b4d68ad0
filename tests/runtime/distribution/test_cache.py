"""The cache folder: where it lies, what is in it, and forgetting it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from foredraft.cache_folder import KINDS, cache_folder, clear, kept
from foredraft.cli import cli
from foredraft.errors import ForedraftError
from tests.runtime.distribution.made import write


def test_it_lies_where_the_platform_keeps_caches(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert cache_folder() == tmp_path / "cache"
    monkeypatch.delenv("FOREDRAFT_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    monkeypatch.setattr(sys, "platform", "linux")
    assert cache_folder() == tmp_path / "xdg" / "foredraft"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache_folder() == Path.home() / ".cache" / "foredraft"
    monkeypatch.setattr(sys, "platform", "darwin")
    assert cache_folder() == Path.home() / "Library" / "Caches" / "foredraft"
    monkeypatch.setattr(sys, "platform", "win32")
    monkeypatch.setenv("LOCALAPPDATA", str(tmp_path / "local"))
    assert cache_folder() == tmp_path / "local" / "foredraft" / "Cache"


def test_list_and_clear(own_cache: Path) -> None:
    write(own_cache / "bundles" / "host" / "name" / "1" / "x", b"1234")
    write(own_cache / "hashes" / "y", b"12")
    write(own_cache / "mine" / "z", b"1")
    sizes = {entry.kind: (entry.files, entry.size) for entry in kept()}
    assert sizes == {**dict.fromkeys(KINDS, (0, 0)), "bundles": (1, 4), "hashes": (1, 2)}
    listed = CliRunner().invoke(cli, ["cache", "list"])
    assert str(own_cache) in listed.stdout
    assert "bundles         1 files      4 bytes   bundles pulled from registries" in listed.stdout
    assert CliRunner().invoke(cli, ["cache", "clear", "hashes"], input="n\n").exit_code == 1
    assert (own_cache / "hashes" / "y").exists()
    assert CliRunner().invoke(cli, ["cache", "clear", "hashes", "--yes"]).exit_code == 0
    assert not (own_cache / "hashes").exists()
    clear()
    assert [p.name for p in own_cache.iterdir()] == ["mine"]
    with pytest.raises(ForedraftError, match="no kind 'other', expected some of bundles"):
        clear(["other"])
