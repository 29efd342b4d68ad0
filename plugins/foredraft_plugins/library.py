"""The shared library of operators: where it is, and what it uses of this CPU. Knows nothing of graphs or sessions.

Register it with ``onnxruntime.SessionOptions.register_custom_ops_library(str(library_path()))``. The operators run on
the session's own threads (``SessionOptions.intra_op_num_threads``).

The environment variable ``FOREDRAFT_ISA`` (``avx512-vnni``, ``avx2`` or ``scalar``; read once per process) forces a
lower instruction set. All of them give the same bits.
"""

from __future__ import annotations

import ctypes
from functools import cache
from pathlib import Path

__all__ = ["DOMAIN", "instruction_set", "library_path", "loaded", "unavailable_reason"]

DOMAIN = "foredraft"
"""The ONNX domain of the operators (version 1)."""


def library_path() -> Path | None:
    """The built library (the newest, should several Pythons have built one), or None if this installation has none."""
    folder = Path(__file__).resolve().parent
    found = [path for path in folder.glob("_native*") if path.suffix in {".so", ".dylib", ".pyd"}]
    return max(found, key=lambda path: path.stat().st_mtime, default=None)


def instruction_set() -> str:
    """``avx512-vnni``, ``avx2`` or ``scalar``: what the operators use on this CPU.

    Raises:
        RuntimeError: the library is unavailable (see `unavailable_reason`).
    """
    reason = unavailable_reason()
    if reason is not None:
        raise RuntimeError(reason)
    name = loaded().foredraft_instruction_set()
    return str(name.decode())


def unavailable_reason() -> str | None:
    """Why the operators cannot be used in this process, or None if they can."""
    path = library_path()
    if path is None:
        return (
            "the operators' library was not built: no C++17 compiler was found when foredraft was installed; "
            "install one (g++ or clang++) and reinstall"
        )
    try:
        library = _load(path)
    except (OSError, AttributeError) as error:
        return f"the operators' library {path} cannot be loaded: {error}"
    message = library.foredraft_error().decode()
    return message or None


def loaded() -> ctypes.CDLL:
    """The library in this process; only where it is available."""
    path = library_path()
    assert path is not None
    return _load(path)


@cache
def _load(path: Path) -> ctypes.CDLL:
    library = ctypes.CDLL(str(path))
    for name in ("foredraft_instruction_set", "foredraft_error"):
        getattr(library, name).restype = ctypes.c_char_p
    return library
