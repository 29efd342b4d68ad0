"""Add a token database, an adapter or engines to a bundle: a new manifest, and therefore a new signature."""

from __future__ import annotations

import hashlib
import mmap
import os
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from foredraft.bundle import Bundle
from foredraft.bundle.manifest import FILE_NAME, PARTIAL, SCHEMA, SIGNATURE, EngineSet, FileInfo, Manifest
from foredraft.bundle.parts import names_of, partial_bytes
from foredraft.bundle.tensor_file import parse_header
from foredraft.databases.database import Database
from foredraft.disk_space import check_space, naming_full_disk
from foredraft.errors import BundleError
from foredraft.staging import locked, put_inside

_BLOCK = 4 << 20


def add_database(bundle: Bundle, file: Path, name: str | None = None) -> Bundle:
    """Copy a token database into the bundle as ``db/NAME.fdb``, replacing one of that name; NAME defaults to
    the file's.

    The bundle loses its signature. Raises DatabaseError if the file is damaged or of another tokenizer,
    BundleError for a name that is taken or not allowed.
    """
    manifest = bundle.published
    database = Database(file, manifest.tokenizer.sha256, manifest.model.vocab_size)
    database.verify()
    database.close()
    chosen = name or file.stem
    path = f"db/{chosen}.fdb"
    changed = replace(manifest, databases={**manifest.databases, chosen: path})
    return _add(bundle, {path: file}, chosen, changed)


def add_adapter(bundle: Bundle, file: Path, name: str | None = None) -> Bundle:
    """Copy an adapter's tensors in as ``adapters/NAME.safetensors``; otherwise as ``add_database``."""
    manifest = bundle.published
    try:
        with file.open("rb") as opened:
            data = memoryview(mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ))
        parse_header(data, str(file))
    except (OSError, ValueError) as error:
        raise BundleError(f"{file}: cannot be read ({error}); expected a safetensors file") from error
    chosen = name or file.stem
    path = f"adapters/{chosen}.safetensors"
    changed = replace(manifest, adapters={**manifest.adapters, chosen: path})
    return _add(bundle, {path: file}, chosen, changed)


def add_engines(bundle: Bundle, folder: Path, name: str, engines: EngineSet) -> Bundle:
    """Move the files of a set of engines from ``folder``, where they lie as they will in the bundle, into it.

    A set of that name is replaced. The bundle loses its signature. Raises BundleError for a name that is taken.
    """
    manifest = bundle.published
    files = {path.relative_to(folder).as_posix(): path for path in sorted(folder.rglob("*")) if path.is_file()}
    old = set(manifest.files_of_engines(name)) if name in manifest.engines else set()
    kept = {path: info for path, info in manifest.files.items() if path not in old}
    changed = replace(manifest, engines={**manifest.engines, name: engines}, files=kept)
    return _add(bundle, files, name, changed)


def _add(bundle: Bundle, incoming: dict[str, Path], name: str, manifest: Manifest) -> Bundle:
    """In an order that opens at every moment: until the last step the new part counts as not here.

    ``incoming`` are files by their path in the bundle.
    """
    folder = bundle.path
    check_space(f"adding {name!r}", (folder, sum(path.stat().st_size for path in incoming.values())))
    held = [part for part in names_of(bundle.manifest) if part != name]
    with (
        naming_full_disk(folder),
        locked(folder.absolute()),
        TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}.added-") as beside,
    ):
        copies = {path: _copy_in(Path(beside) / str(at), file) for at, (path, file) in enumerate(incoming.items())}
        files = dict(sorted({**manifest.files, **{path: info for path, (_, info) in copies.items()}}.items()))
        changed = replace(manifest, files=files, schema=f"{SCHEMA[0]}.{SCHEMA[1]}")
        changed.check(str(folder / FILE_NAME))
        put_inside(folder, PARTIAL, partial_bytes(held))
        for path in set(bundle.published.files) - set(files):
            (folder / path).unlink(missing_ok=True)
        put_inside(folder, FILE_NAME, changed.to_bytes())
        (folder / SIGNATURE).unlink(missing_ok=True)
        for path, (copy, _) in copies.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            copy.replace(folder / path)
        if set(held) | {name} == set(names_of(changed)):
            (folder / PARTIAL).unlink()
        else:
            put_inside(folder, PARTIAL, partial_bytes([*held, name]))
    return Bundle.open(folder)


def _copy_in(copy: Path, file: Path) -> tuple[Path, FileInfo]:
    """A flushed copy of the file, with its size and hash."""
    digest, size = hashlib.sha256(), 0
    with file.open("rb") as data, copy.open("wb") as out:
        while block := data.read(_BLOCK):
            digest.update(block)
            out.write(block)
            size += len(block)
        out.flush()
        os.fsync(out.fileno())
    return copy, FileInfo(size, digest.hexdigest())
