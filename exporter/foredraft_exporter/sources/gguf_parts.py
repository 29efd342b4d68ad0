"""A GGUF model in parts (``NAME-00001-of-00003.gguf``, as ``llama-gguf-split`` writes them), read as one.

The first part has the metadata, any of them tensors. Each says which part of how many it is, and how many tensors
there are in all.
"""

from __future__ import annotations

from pathlib import Path

from foredraft.errors import CheckpointError
from foredraft_exporter.sources.gguf_header import GgufHeader, GgufTensor, read_header
from foredraft_exporter.sources.gguf_names import parts_like
from foredraft_exporter.sources.mapped import MappedFile

_NUMBER, _COUNT, _TENSORS = "split.no", "split.count", "split.tensors.count"


def read_parts(path: Path) -> tuple[tuple[MappedFile, ...], GgufHeader]:
    """The files and the one header of the model that ``path`` is, or is a part of.

    Raises ``CheckpointError`` naming the part that is missing, damaged, or of another model.
    """
    file = MappedFile(path)
    header = read_header(file)
    count = header.metadata.whole(_COUNT, 1)
    if count == 1:
        return (file,), header
    paths = _siblings(path, count)
    files = tuple(MappedFile(part) for part in paths)
    headers = [read_header(part) for part in files]
    return files, GgufHeader(headers[0].metadata, _joined(paths, headers))


def _siblings(path: Path, count: int) -> list[Path]:
    """All parts, found by the name of one; of a link alone in its folder, those beside the file it leads to."""
    sets = [found for place in (path, path.resolve()) if (found := parts_like(place, count))]
    if not sets:
        raise CheckpointError(
            f"{path}: is one of {count} parts, which are found by their names; expected a name such as "
            f"NAME-00001-of-{count:05d}.gguf, give it back the one it had"
        )
    complete = next((parts for parts in sets if all(part.exists() for part in parts)), None)
    if complete is None:
        missing = [part for part in sets[0] if not part.exists()]
        raise CheckpointError(
            f"{missing[0]}: missing part ({count - len(missing)} of {count} are there); download it again"
        )
    return complete


def _joined(paths: list[Path], headers: list[GgufHeader]) -> dict[str, GgufTensor]:
    """The tensors of all parts, if the parts are of one model."""
    tensors: dict[str, GgufTensor] = {}
    total = headers[0].metadata.whole(_TENSORS)
    for number, (path, header) in enumerate(zip(paths, headers, strict=True)):
        for key, expected in ((_NUMBER, number), (_COUNT, len(paths)), (_TENSORS, total)):
            if header.metadata.whole(key, least=0) != expected:
                raise header.metadata.fault(
                    key, f"{expected} for this part; it is renamed or of another model, download it again"
                )
        twice = sorted(header.tensors.keys() & tensors.keys())
        if twice:
            raise CheckpointError(f"{path}: tensor {twice[0]!r} is also in {tensors[twice[0]].file.path.name}")
        tensors |= header.tensors
    if len(tensors) != total:
        raise headers[0].metadata.fault(
            _TENSORS,
            f"{len(tensors)}, which the {len(paths)} parts have; they are of different versions, download all again",
        )
    return tensors
