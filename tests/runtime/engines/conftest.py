"""Bundles with engines for the stand-ins, exported once for the whole run. Read only."""

from __future__ import annotations

from pathlib import Path

import pytest

from foredraft.bundle import Bundle
from tests.runtime.engines.made import exported, tiny_engines

LAYERSKIP = Path(__file__).parents[2] / "data" / "layerskip-tiny"


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache folder for each test."""
    folder = tmp_path / "cache"
    monkeypatch.setenv("FOREDRAFT_CACHE", str(folder))
    return folder


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    """The tiny Llama with exits after layers 1 and 2 that draft from 128 tokens, for sm89 and sm120."""
    return Bundle.open(tiny_engines(tmp_path_factory.mktemp("engines"), targets=("sm89", "sm120"), draft_vocab=128))


@pytest.fixture(scope="session")
def native(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    """The same with the library's own attention."""
    return Bundle.open(tiny_engines(tmp_path_factory.mktemp("native"), attention="native"))


@pytest.fixture(scope="session")
def layerskip(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    """A model whose exit after layer 4 is worth something."""
    if not LAYERSKIP.is_dir():
        pytest.skip("tests/data/layerskip-tiny is not there")
    return Bundle.open(exported(LAYERSKIP, tmp_path_factory.mktemp("layerskip") / "b.foredraft", exits=(4, 8)))
