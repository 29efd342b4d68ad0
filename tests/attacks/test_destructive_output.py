"""Nothing that is not ours is ever deleted, and no command writes over what it reads."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from foredraft.bundle import Bundle
from foredraft.distribution.pack import pack
from foredraft.distribution.unpack import unpack
from foredraft.errors import ForedraftError
from foredraft_exporter.build import export
from tests.fixtures import tiny_checkpoint, tiny_gguf
from tests.runtime.distribution.made import make_bundle


def contents(folder: Path) -> dict[str, bytes]:
    """Every file below a folder."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("replace", [False, True])
@pytest.mark.parametrize("out", ["model", "model/inside.foredraft", ".", "link", "model/../model"])
def test_an_export_never_touches_its_source(tmp_path: Path, out: str, replace: bool) -> None:
    source = tiny_checkpoint(tmp_path / "model")
    (tmp_path / "link").symlink_to(source)
    before = contents(tmp_path)
    with pytest.raises(ForedraftError, match=r"(is|holds|lies in) the source"):
        export(source, tmp_path / out, precision="int8", replace=replace)
    assert contents(tmp_path) == before


def test_a_gguf_is_not_written_over(tmp_path: Path) -> None:
    source = tiny_gguf(tmp_path / "tiny.gguf", "Q4_1", kinds={"token_embd": "Q8_0"})
    before = contents(tmp_path)
    for out in (source, tmp_path):
        with pytest.raises(ForedraftError, match=r"(is|holds) the source"):
            export(source, out, replace=True)
    assert contents(tmp_path) == before


def home(path: Path) -> None:
    """A folder of the user's."""
    path.mkdir()
    (path / "thesis.txt").write_text("years of work")


def letter(path: Path) -> None:
    """A file of the user's."""
    path.write_text("years of work")


@pytest.mark.parametrize("make", [home, letter])
@pytest.mark.parametrize("command", ["export", "unpack", "pack"])
def test_force_replaces_only_what_is_ours(tmp_path: Path, command: str, make: Callable[[Path], None]) -> None:
    bundle = make_bundle(tmp_path / "made.foredraft")
    archive, source = tmp_path / "made.tar", tiny_checkpoint(tmp_path / "model")
    pack(Bundle.open(bundle), archive)
    target = tmp_path / "mine"
    make(target)
    before = contents(tmp_path)
    with pytest.raises(ForedraftError, match="--force does not replace it"):
        if command == "export":
            export(source, target, precision="int8", replace=True)
        elif command == "unpack":
            unpack(archive, target, replace=True)
        else:
            pack(Bundle.open(bundle), target, replace=True)
    assert contents(tmp_path) == before


def test_an_empty_folder_and_what_is_ours_are_replaced(tmp_path: Path) -> None:
    bundle = make_bundle(tmp_path / "made.foredraft")
    archive, target = tmp_path / "made.tar", tmp_path / "out.foredraft"
    pack(Bundle.open(bundle), archive)
    pack(Bundle.open(bundle), archive, replace=True)
    target.mkdir()
    unpack(archive, target, replace=True)
    unpack(archive, target, replace=True)
    assert contents(target) == contents(bundle)


def test_an_archive_is_not_written_into_its_bundle(tmp_path: Path) -> None:
    bundle = make_bundle(tmp_path / "made.foredraft")
    before = contents(bundle)
    with pytest.raises(ForedraftError, match="lies in the source"):
        pack(Bundle.open(bundle), bundle / "a.tar")
    assert contents(bundle) == before
