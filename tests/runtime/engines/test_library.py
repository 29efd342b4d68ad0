"""The file that TensorRT for RTX's parser must find, and the kernels that it keeps."""

from __future__ import annotations

import dataclasses
import os
import sys
from pathlib import Path

import numpy as np
import pytest

from foredraft.bundle import Bundle
from foredraft.engines.tensorrt import libraries
from foredraft.engines.tensorrt.libraries import LIBRARIES, installed_version, library, load, require_parser
from foredraft.engines.tensorrt.runtime_cache import RuntimeCache
from foredraft.errors import EngineError
from tests.runtime.engines.made import opened
from tests.runtime.engines.test_sequence import batch

RTX = LIBRARIES["tensorrt-rtx"]
NO_SUCH = dataclasses.replace(RTX, module="no_such_library", parser_opens="libno_such.so", files="no_such_files")


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the library's own files, as its wheel installs it."""
    folder = tmp_path / "no_such_files"
    folder.mkdir()
    (folder / "__init__.py").touch()
    (folder / "libno_such.so.1").write_bytes(b"elf")
    monkeypatch.syspath_prepend(tmp_path)
    return folder


def test_the_parsers_file_is_linked_beside_it(files: Path) -> None:
    for _ in range(2):
        require_parser(NO_SUCH)
    assert (files / "libno_such.so").readlink() == Path("libno_such.so.1")


def test_a_folder_that_cannot_be_written_says_what_to_do(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: Path, target: str) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "symlink_to", refuse)
    with pytest.raises(EngineError, match=r"run: ln -s libno_such.so.1 .*/libno_such.so$"):
        require_parser(NO_SUCH)


def test_a_link_to_nothing(files: Path) -> None:
    (files / "libno_such.so").symlink_to("gone")
    with pytest.raises(EngineError, match="a link to nothing"):
        require_parser(NO_SUCH)


def test_a_library_from_elsewhere_must_be_on_the_path() -> None:
    with pytest.raises(EngineError, match=r"set LD_LIBRARY_PATH .* before Python starts"):
        require_parser(NO_SUCH)
    require_parser(LIBRARIES["tensorrt"])  # has no such file


def test_what_is_not_installed_names_its_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(EngineError, match=r"no_such_library is not installed; pip install 'foredraft\[tensorrt-rtx\]'"):
        load(NO_SUCH)
    assert installed_version(NO_SUCH) is None
    (tmp_path / "no_such_library.py").write_text("raise OSError('libcuda.so.1: cannot open')")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(EngineError, match=r"installed, but it cannot be loaded \(libcuda"):
        load(NO_SUCH)
    with pytest.raises(EngineError, match="library 'openvino': expected tensorrt-rtx or tensorrt"):
        library("openvino")


def test_nothing_heavy_is_imported_before_it_is_used() -> None:
    script = "import sys, foredraft, foredraft.engines.select; names = ('tensorrt_rtx', 'tensorrt', 'cuda', 'triton');"
    script += "sys.exit(str([name for name in names if name in sys.modules]) if set(names) & set(sys.modules) else 0)"
    assert os.spawnl(os.P_WAIT, sys.executable, sys.executable, "-c", script) == 0


def test_finished_kernels_are_kept_for_the_next_start(tiny: Bundle, own_cache: Path) -> None:
    engine, _, _ = opened(tiny)
    engine.open_sequence(100).run(0, batch(3))
    (path,) = (own_cache / "kernels").iterdir()
    first, changed = path.read_bytes(), path.stat().st_mtime_ns
    again, _, trt = opened(tiny)
    assert trt.engines[0].contexts == []
    sequence = again.open_sequence(100)
    sequence.run(0, batch(3))
    assert trt.engines[0].contexts[0].config.cache.shapes, "what was kept was read"
    assert path.stat().st_mtime_ns == changed, "nothing new was compiled"
    sequence.run(0, batch(9))
    assert len(path.read_bytes()) > len(first)


@pytest.mark.parametrize("content", [b"", b"kernels 0.9|x", b"\0" * 100])
def test_kernels_that_do_not_fit_cost_a_warning(
    tiny: Bundle, own_cache: Path, caplog: pytest.LogCaptureFixture, content: bytes
) -> None:
    engine, _, _ = opened(tiny)
    engine.open_sequence(100).run(0, batch(3))
    (path,) = (own_cache / "kernels").iterdir()
    path.write_bytes(content)
    again, _, _ = opened(tiny)
    assert f"{path}: does not fit this device or is damaged; kernels are compiled again" in caplog.text
    sequence = again.open_sequence(100)
    sequence.run(0, batch(3))
    assert np.isfinite(sequence.readout(np.arange(3))).all()
    assert path.read_bytes().startswith(b"kernels 1.7")


def test_a_cache_folder_that_cannot_be_written_costs_a_warning(
    tiny: Bundle, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Path, data: bytes) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("foredraft.engines.tensorrt.runtime_cache.write_atomically", refuse)
    engine, _, _ = opened(tiny)
    engine.open_sequence(100).run(0, batch(3))
    assert caplog.text.count("cannot be written (No space left on device)") == 1
    assert isinstance(engine.loaded[0]._cache, RuntimeCache)


def test_the_table_of_libraries_is_complete() -> None:
    assert {name: chosen.name for name, chosen in libraries.LIBRARIES.items()} == {name: name for name in LIBRARIES}
    assert not RTX.needs_gpu and LIBRARIES["tensorrt"].needs_gpu
    assert set(RTX.targets) < set(LIBRARIES["tensorrt"].targets)
