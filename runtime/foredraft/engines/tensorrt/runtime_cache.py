"""The kernels that TensorRT for RTX finished for this device, kept from one start to the next.

A file that does not fit (another device, driver or version) or is damaged costs a warning and a slow start, no more.
"""

from __future__ import annotations

import hashlib
import logging
from pathlib import Path
from typing import Any

from foredraft.cache_folder import cache_folder, write_atomically
from foredraft.engines.cuda.device import Device

_log = logging.getLogger("foredraft")


class RuntimeCache:
    """The cache of one engine, to be set in its runtime configuration ``config``."""

    def __init__(self, config: Any, device: Device, engine_sha256: str, version: str) -> None:
        key = f"{engine_sha256}|{version}|{device.name}|{device.target}|{device.driver_version}"
        self.path: Path = cache_folder() / "kernels" / f"{hashlib.sha256(key.encode()).hexdigest()[:24]}.bin"
        self._cache = config.create_runtime_cache()
        self._kept = b""
        self._read()
        config.set_runtime_cache(self._cache)

    def _read(self) -> None:
        try:
            data = self.path.read_bytes()
        except FileNotFoundError:
            return
        except OSError as error:
            _log.warning("%s: cannot be read (%s); kernels are compiled again", self.path, error.strerror)
            return
        if self._cache.deserialize(data):
            self._kept = data
        else:
            _log.warning("%s: does not fit this device or is damaged; kernels are compiled again", self.path)

    def keep(self) -> None:
        """Write it to the user's cache folder if kernels were compiled since the last time."""
        data = bytes(self._cache.serialize())
        if data == self._kept:
            return
        try:
            write_atomically(self.path, data)
        except OSError as error:
            _log.warning("%s: cannot be written (%s); kernels will be compiled again", self.path, error.strerror)
        self._kept = data
