"""The two TensorRT libraries: one API, one table of differences, one place where either is imported."""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import importlib.util
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from foredraft.errors import EngineError


@dataclass(frozen=True, slots=True)
class Library:
    """One of the libraries. ``name`` is what manifests and options call it, ``module`` what Python does."""

    name: str
    module: str
    extra: str
    """Foredraft's extra that installs it."""
    targets: tuple[str, ...]
    """Compute capabilities that it compiles for."""
    needs_gpu: bool
    """Whether building needs the device that is built for; otherwise any machine builds for any target."""
    jit: bool
    """Whether kernels are finished when an engine is loaded, for which there is a runtime cache to keep."""
    parser_opens: str | None = None
    """A file name that the ONNX parser opens by itself, and whose absence ends the process without an exception."""
    files: str | None = None
    """The module in whose folder the library's own files lie."""


_ALL = ("sm75", "sm80", "sm86", "sm87", "sm89", "sm90", "sm100", "sm103", "sm110", "sm120", "sm121")
LIBRARIES = {
    "tensorrt-rtx": Library(
        name="tensorrt-rtx",
        module="tensorrt_rtx",
        extra="tensorrt-rtx",
        targets=("sm75", "sm80", "sm86", "sm89", "sm120", "sm121"),
        needs_gpu=False,
        jit=True,
        parser_opens="libtensorrt_rtx.so",
        files="tensorrt_rtx_libs",
    ),
    "tensorrt": Library("tensorrt", "tensorrt", "tensorrt", _ALL, needs_gpu=True, jit=False),
}


def library(name: str) -> Library:
    """The library called ``name``; raises EngineError for one that is not known."""
    if name not in LIBRARIES:
        raise EngineError(f"library {name[:80]!r}: expected {' or '.join(LIBRARIES)}")
    return LIBRARIES[name]


def load(chosen: Library) -> Any:
    """Its Python module. Raises EngineError, naming what to install, if it is not there or cannot be loaded."""
    try:
        return importlib.import_module(chosen.module)
    except ModuleNotFoundError as error:
        raise EngineError(
            f"{chosen.name}: the Python module {error.name or chosen.module} is not installed; "
            f"pip install 'foredraft[{chosen.extra}]'"
        ) from error
    except (ImportError, OSError) as error:
        raise EngineError(
            f"{chosen.name}: installed, but it cannot be loaded ({error}); "
            f"pip install --force-reinstall 'foredraft[{chosen.extra}]'"
        ) from error


def installed_version(chosen: Library) -> str | None:
    """The version that is installed here; None if there is none that loads."""
    try:
        return str(load(chosen).__version__)
    except EngineError:
        return None


def require_parser(chosen: Library) -> None:
    """Call before the library's ONNX parser is made: without a file that it opens by name the process would end.

    The wheel ships that file only under a name with a version. The plain name is linked beside it, where the parser
    looks first. Raises EngineError, saying what to do, if that is not possible.
    """
    if chosen.parser_opens is None:
        return
    folder = _folder(chosen)
    versioned = next(iter(sorted(folder.glob(f"{chosen.parser_opens}.*"))), None) if folder else None
    if folder is None or versioned is None:
        _require_on_path(chosen, chosen.parser_opens)
        return
    plain = folder / chosen.parser_opens
    try:
        with contextlib.suppress(FileExistsError):  # there already, or another process was faster
            plain.symlink_to(versioned.name)
    except OSError as error:
        if _loads(chosen.parser_opens):
            return
        raise EngineError(
            f"{chosen.name}: its ONNX parser needs {plain}, which cannot be made ({error.strerror}); "
            f"as a user who may write there run: ln -s {versioned.name} {plain}"
        ) from error
    if not plain.exists():
        raise EngineError(f"{plain}: a link to nothing; remove it and try again")


def _folder(chosen: Library) -> Path | None:
    found = importlib.util.find_spec(chosen.files) if chosen.files else None
    places = list(found.submodule_search_locations or ()) if found else []
    return Path(places[0]) if places else None


def _require_on_path(chosen: Library, name: str) -> None:
    """For a library that was not installed from its wheel."""
    if not _loads(name):
        raise EngineError(
            f"{chosen.name}: its ONNX parser needs {name}, which is on no library path; set LD_LIBRARY_PATH to the "
            f"folder that holds it before Python starts, or pip install 'foredraft[{chosen.extra}]'"
        )


def _loads(name: str) -> bool:
    try:
        ctypes.CDLL(name)
    except OSError:
        return False
    return True
