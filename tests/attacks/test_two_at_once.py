"""Two writers of one bundle, and the same source exported twice."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from foredraft.bundle import Bundle
from foredraft.bundle.manifest import FILE_NAME
from foredraft.errors import ForedraftError
from foredraft.staging import locked, staged_folder
from foredraft_exporter.build import export
from tests.fixtures import tiny_checkpoint


def test_two_exports_at_once(tmp_path: Path) -> None:
    """One wins and the other is told so; or both come one after the other. Never a mixture of the two."""
    sources = [tiny_checkpoint(tmp_path / f"model-{seed}", seed=seed) for seed in (0, 1)]
    alone = []
    for index, source in enumerate(sources):
        export(source, tmp_path / f"alone-{index}", precision="int8")
        alone.append(Bundle.open(tmp_path / f"alone-{index}").manifest.files)
    for _ in range(3):
        start, errors = threading.Barrier(2), []
        threads = [
            threading.Thread(target=_export, args=(source, tmp_path / "both", start, errors)) for source in sources
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert all("another process is writing it; wait for it to finish" in error for error in errors)
        assert len(errors) < 2
        made = Bundle.open(tmp_path / "both")
        made.verify()
        assert made.manifest.files in alone


def _export(source: Path, out: Path, start: threading.Barrier, errors: list[str]) -> None:
    start.wait()
    try:
        export(source, out, precision="int8", replace=True)
    except ForedraftError as error:
        errors.append(str(error))


def test_a_lock_is_held_by_one(tmp_path: Path) -> None:
    target = tmp_path / "b"
    with locked(target):
        with (
            pytest.raises(ForedraftError, match="another process is writing it"),
            staged_folder(target, marker="marker"),
        ):
            pass
        assert not target.exists()
    with staged_folder(target, marker="marker") as folder:
        (folder / "x").write_text("x")
    assert [p.name for p in tmp_path.iterdir()] == ["b"]


def test_many_lockers_never_overlap(tmp_path: Path) -> None:
    """The lock's file comes and goes; whoever holds it holds it alone."""
    inside, most, errors = [0], [0], [0]

    def run() -> None:
        for _ in range(200):
            try:
                with locked(tmp_path / "b"):
                    inside[0] += 1
                    most[0] = max(most[0], inside[0])
                    inside[0] -= 1
            except ForedraftError:
                errors[0] += 1

    threads = [threading.Thread(target=run) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most[0] == 1


def test_what_a_swap_had_moved_aside_comes_back(tmp_path: Path) -> None:
    (tmp_path / ".b.replaced").mkdir()
    (tmp_path / ".b.replaced" / "old").write_text("old")
    (tmp_path / ".b.replaced" / "marker").touch()
    with pytest.raises(RuntimeError), staged_folder(tmp_path / "b", replace=True, marker="marker"):
        raise RuntimeError
    assert (tmp_path / "b" / "old").read_text() == "old"


def test_an_export_is_reproducible(tmp_path: Path) -> None:
    """Same source, options and versions, in two folders: the same manifest, hence the same digest of all files."""
    made = []
    for name in ("one", "other"):
        source = tiny_checkpoint(tmp_path / name / "model", seed=3)
        export(source, tmp_path / name / "out" / "bundle", precision="int8", exits=[2])
        made.append((tmp_path / name / "out" / "bundle" / FILE_NAME).read_bytes())
    assert made[0] == made[1]
