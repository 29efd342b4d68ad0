"""Every test here has a cache of its own and a small bundle to spoil."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.runtime.distribution.conftest import _registry, registry  # noqa: F401 (fixtures)
from tests.runtime.distribution.made import make_bundle


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The cache folder of this test."""
    monkeypatch.setenv("FOREDRAFT_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    """A small sound bundle."""
    return make_bundle(tmp_path / "made.foredraft", databases=("words",))
