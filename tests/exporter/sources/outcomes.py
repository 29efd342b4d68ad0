"""What comes of preparing the export of a model that is wrong somewhere."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

from foredraft.errors import ForedraftError
from foredraft_exporter.build import prepare
from foredraft_exporter.models.rope import rotary_tables
from foredraft_exporter.sources.gguf_file import GgufFile
from foredraft_exporter.sources.safetensors_folder import SafetensorsFolder


def outcome(source: Path, file: Path | None = None, keys: Sequence[str] = ()) -> str:
    """The text of the one error of ours, raised before any weight was read; it names ``file`` (or ``source``) and one
    of ``keys``. Empty if the model is taken, whose rotation is then sound.
    """
    with _reads() as read:
        try:
            plan = prepare(source)
            decoder = replace(plan.decoder, context=min(plan.decoder.context, 64))
            with np.errstate(all="raise", under="ignore"):
                tables = rotary_tables(plan.checkpoint.info.config, decoder)
            assert all(np.isfinite(table).all() for table in tables)
        except ForedraftError as error:
            text = str(error)
            assert str(file or source) in text, (file, text)
            assert not keys or any(key in text for key in keys), (keys, text)
            assert not read, (read, text)
            assert text.isprintable() and len(text) < 1500, text
            return text
    return ""


@contextmanager
def _reads() -> Iterator[list[str]]:
    """The names of tensors of which rows are read."""
    read: list[str] = []

    def told(original: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(self: object, name: str, *rows: int) -> Any:
            read.append(name)
            return original(self, name, *rows)

        return wrapped

    with ExitStack() as stack:
        for kind in (SafetensorsFolder, GgufFile):
            stack.enter_context(patch.object(kind, "read_rows", told(kind.read_rows)))
        yield read
