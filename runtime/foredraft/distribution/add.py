"""Add a token database or an adapter to a bundle: a new manifest, and therefore a new signature."""

from __future__ import annotations

import hashlib
import mmap
import os
from dataclasses import replace
from pathlib import Path

from foredraft.bundle import Bundle
from foredraft.bundle.manifest import FILE_NAME, PARTIAL, SCHEMA, SIGNATURE, FileInfo, Manifest
from foredraft.bundle.parts import names_of, partial_bytes
from foredraft.bundle.tensor_file import parse_header
from foredraft.errors import BundleError
from foredraft.hierarchy.database import Database
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
    return _add(bundle, file, chosen, path, replace(manifest, databases={**manifest.databases, chosen: path}))


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
    return _add(bundle, file, chosen, path, replace(manifest, adapters={**manifest.adapters, chosen: path}))


def _add(bundle: Bundle, file: Path, name: str, path: str, manifest: Manifest) -> Bundle:
    """In an order that opens at every moment: until the last step the new part counts as not here."""
    folder = bundle.path
    held = [part for part in names_of(bundle.manifest) if part != name]
    with locked(folder.absolute()):
        incoming, info = _copy_in(folder, file)
        files = dict(sorted({**manifest.files, path: info}.items()))
        changed = replace(manifest, files=files, schema=f"{SCHEMA[0]}.{SCHEMA[1]}")
        try:
            changed.check(str(folder / FILE_NAME))
        except BundleError:
            incoming.unlink()
            raise
        put_inside(folder, PARTIAL, partial_bytes(held))
        put_inside(folder, FILE_NAME, changed.to_bytes())
        (folder / SIGNATURE).unlink(missing_ok=True)
        (folder / path).parent.mkdir(exist_ok=True)
        incoming.replace(folder / path)
        if set(held) | {name} == set(names_of(changed)):
            (folder / PARTIAL).unlink()
        else:
            put_inside(folder, PARTIAL, partial_bytes([*held, name]))
    return Bundle.open(folder)


def _copy_in(folder: Path, file: Path) -> tuple[Path, FileInfo]:
    """A copy beside the bundle, with its size and hash."""
    copy, digest, size = folder.parent / f".{folder.name}.added", hashlib.sha256(), 0
    with file.open("rb") as data, copy.open("wb") as out:
        while block := data.read(_BLOCK):
            digest.update(block)
            out.write(block)
            size += len(block)
        out.flush()
        os.fsync(out.fileno())
    return copy, FileInfo(size, digest.hexdigest())
