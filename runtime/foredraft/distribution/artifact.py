"""A bundle as an OCI artifact: its manifest.json is the config, each file a layer of its own, the signature
too.

So a registry keeps every file once, whatever bundles hold it. The pull needs only the config: it names each
file's sha256, which is the blob's. Several precisions under one tag are an OCI index with one artifact for
each.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from foredraft.bundle.manifest import FILE_NAME, MAX_MANIFEST, SIGNATURE, Manifest
from foredraft.bundle.signature import MAX_SIGNATURE
from foredraft.bundle.typed_json import parse_object
from foredraft.distribution.registry import IMAGE, INDEX, MAX_DOCUMENT, Registry, digest_of
from foredraft.errors import BundleError, RegistryError

ARTIFACT = "application/vnd.foredraft.bundle.v1"
CONFIG = "application/vnd.foredraft.bundle.manifest.v1+json"
LAYER = "application/vnd.foredraft.file.v1"
SIGNATURE_LAYER = "application/vnd.dev.sigstore.bundle.v0.3+json"
TITLE = "org.opencontainers.image.title"
PRECISION = "org.foredraft.precision"
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class Artifact:
    """What a registry says of a bundle. ``digest`` is that of the OCI manifest."""

    digest: str
    manifest_bytes: bytes
    manifest: Manifest
    signature: bytes | None


def image(manifest_bytes: bytes, manifest: Manifest, signature: bytes | None) -> bytes:
    """The OCI manifest of a bundle; the same bundle gives the same bytes, hence the same digest."""
    layers = [_descriptor(LAYER, f"sha256:{info.sha256}", info.size, name) for name, info in manifest.files.items()]
    if signature is not None:
        layers.append(_descriptor(SIGNATURE_LAYER, digest_of(signature), len(signature), SIGNATURE))
    value = {
        "schemaVersion": 2,
        "mediaType": IMAGE,
        "artifactType": ARTIFACT,
        "config": _descriptor(CONFIG, digest_of(manifest_bytes), len(manifest_bytes), FILE_NAME),
        "layers": layers,
        "annotations": _annotations(manifest),
    }
    return json.dumps(value, indent=1, ensure_ascii=False).encode()


def index(manifests: Mapping[str, dict[str, Any]]) -> bytes:
    """The OCI index over artifacts by precision."""
    value = {
        "schemaVersion": 2,
        "mediaType": INDEX,
        "manifests": [manifests[name] for name in sorted(manifests)],
    }
    return json.dumps(value, indent=1, ensure_ascii=False).encode()


def entry(document: bytes, precision: str) -> dict[str, Any]:
    """An artifact's entry in an index."""
    found = {
        "mediaType": IMAGE,
        "artifactType": ARTIFACT,
        "digest": digest_of(document),
        "size": len(document),
    }
    return {**found, "annotations": {PRECISION: precision}}


def entries(document: bytes, where: str) -> dict[str, dict[str, Any]]:
    """An index's artifacts by precision; entries of other kinds are left out."""
    value = parse_object(document, where)
    try:
        bundles = [item for item in value["manifests"] if item.get("artifactType") == ARTIFACT]
        return {str(item["annotations"][PRECISION]): item for item in bundles}
    except (AttributeError, KeyError, TypeError) as error:
        raise RegistryError(f"{where}: is not an index of bundles ({error!r})") from error


def own_entry(document: bytes, where: str) -> dict[str, dict[str, Any]]:
    """A single artifact as the index that holds nothing else; raises RegistryError if it is no bundle."""
    value = parse_object(document, where)
    try:
        if value["artifactType"] != ARTIFACT:
            raise RegistryError(f"{where}: holds something else ({value['artifactType']}); choose another tag")
        precision = str(value["annotations"][PRECISION])
    except (KeyError, TypeError) as error:
        raise RegistryError(f"{where}: holds something else than a bundle; choose another tag") from error
    return {precision: entry(document, precision)}


def fetch(registry: Registry, target: str, only: Sequence[str], where: str) -> Artifact:
    """The artifact behind a tag or digest; of several precisions the one in ``only``.

    Raises RegistryError if there is no bundle, or several and none is named.
    """
    kind, document = registry.get_manifest(target)
    if kind == INDEX:
        found = entries(document, where)
        named = [name for name in found if name in only] or list(found)
        if len(named) != 1:
            known = ", ".join(found) or "none"
            raise RegistryError(
                f"{where}: holds the precisions {known}; name one, as in --only {named[0] if named else ''}"
            )
        digest = str(found[named[0]].get("digest"))
        if not _DIGEST.fullmatch(digest):
            raise RegistryError(f"{where}: digest {digest[:80]!r}, expected a sha256")
        kind, document = registry.get_manifest(digest)
    return _read_image(registry, kind, document, where)


def _read_image(registry: Registry, kind: str, document: bytes, where: str) -> Artifact:
    value = parse_object(document, where)
    try:
        config, layers = value["config"], value["layers"]
        if kind != IMAGE or config["mediaType"] != CONFIG:
            raise RegistryError(f"{where}: is not a Foredraft bundle ({config['mediaType']}); check the name")
        signatures = [str(layer["digest"]) for layer in layers if layer["mediaType"] == SIGNATURE_LAYER]
        config_digest = str(config["digest"])
    except (KeyError, TypeError) as error:
        raise RegistryError(f"{where}: its OCI manifest is malformed ({error!r})") from error
    for digest in (config_digest, *signatures):
        if not _DIGEST.fullmatch(digest):
            raise RegistryError(f"{where}: digest {digest[:80]!r}, expected a sha256")
    manifest_bytes = registry.read_blob(config_digest, MAX_MANIFEST, FILE_NAME)
    manifest = Manifest.from_bytes(manifest_bytes, f"{where}: {FILE_NAME}")
    signature = registry.read_blob(signatures[0], MAX_SIGNATURE, SIGNATURE) if signatures else None
    return Artifact(digest_of(document), manifest_bytes, manifest, signature)


def _descriptor(kind: str, digest: str, size: int, title: str) -> dict[str, Any]:
    return {"mediaType": kind, "digest": digest, "size": size, "annotations": {TITLE: title}}


def _annotations(manifest: Manifest) -> dict[str, str]:
    found = {TITLE: manifest.model.name, PRECISION: manifest.precision}
    if manifest.model.license:
        found["org.opencontainers.image.licenses"] = manifest.model.license
    return found


def check_size(document: bytes, where: str) -> bytes:
    """Refuse an OCI manifest that registries would not take; raises BundleError."""
    if len(document) > MAX_DOCUMENT // 2:
        raise BundleError(
            f"{where}: too many files for one OCI manifest ({len(document)} bytes); pack the bundle instead"
        )
    return document
