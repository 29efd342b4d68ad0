"""Where pulled bundles lie, and what a user means by the name of one. Never touches the network."""

from __future__ import annotations

import os
from pathlib import Path

from foredraft.bundle import Bundle
from foredraft.cache_folder import cache_folder
from foredraft.distribution.registry_reference import RegistryReference, try_parse
from foredraft.errors import BundleError


def bundle_folder(reference: RegistryReference) -> Path:
    """The folder that ``pull`` fills for this reference. Two references never share one."""
    name = reference.repository.replace("/", "+")
    target = reference.target.replace(":", "+")
    return cache_folder() / "bundles" / reference.registry.replace(":", "+") / name / target


def resolve(reference: str | os.PathLike[str]) -> Path:
    """The folder of a bundle given as a path or as a registry reference; a path that exists wins.

    Raises BundleError for a reference that was not pulled. Anything else comes back as a path for
    ``Bundle.open`` to judge.
    """
    text = os.fspath(reference)
    path = Path(text).expanduser()
    if os.path.lexists(path):
        return path
    parsed = try_parse(text)
    if parsed is None:
        return path
    folder = bundle_folder(parsed)
    if not folder.exists():
        raise BundleError(f"{text}: no such folder, and not pulled; fetch it with: foredraft pull {text}")
    return folder


def open_bundle(
    reference: str | os.PathLike[str],
    *,
    require_signature: bool = False,
    key: str | os.PathLike[str] | None = None,
) -> Bundle:
    """``Bundle.open`` for a path or a pulled reference; raises BundleError as both of its steps do."""
    chosen = None if key is None else Path(key).expanduser()
    return Bundle.open(resolve(reference), require_signature=require_signature, key=chosen)
