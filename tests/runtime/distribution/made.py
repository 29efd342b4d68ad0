"""Small bundles made by hand: true in every respect that shipping looks at, though no engine could run them."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import numpy as np
import onnx
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

from foredraft.bundle.manifest import (
    FILE_NAME,
    SCHEMA,
    FileInfo,
    GraphFiles,
    Manifest,
    ModelInfo,
    SegmentInfo,
    TokenizerInfo,
)
from tests.fixtures import CHAT_TEMPLATE, byte_tokenizer

LOWERINGS = ("kernels", "portable")


def make_bundle(
    folder: Path, *, precision: str = "int8", weights: int = 4096, seed: int = 0, databases: tuple[str, ...] = ()
) -> Path:
    """Write a bundle with ``weights`` bytes of weights and return its folder."""
    tokenizer = byte_tokenizer().to_str().encode()
    graph_files = {}
    for lowering in LOWERINGS:
        segment, head = f"graphs/{lowering}-segment-0.onnx", f"graphs/{lowering}-head.onnx"
        for path in (segment, head):
            write(folder / path, graph(f"weights/{precision}.safetensors", 8, doc=path))
        graph_files[lowering] = GraphFiles((segment,), head)
    write(folder / f"graphs/weights/{precision}.safetensors", safetensors(weights, seed))
    write(folder / "tokenizer.json", tokenizer)
    write(folder / "chat_template.jinja", CHAT_TEMPLATE.encode())
    for name in databases:
        write(folder / f"db/{name}.fdb", f"database {name} {seed}".encode() * 100)
    manifest = Manifest(
        schema=f"{SCHEMA[0]}.{SCHEMA[1]}",
        foredraft="0.1.0",
        model=ModelInfo("made", "llama", "apache-2.0", 4, 64, 96, 4, 2, 16, 272, 256),
        precision=precision,
        exits=(),
        segments=(SegmentInfo(0, 4),),
        tokenizer=TokenizerInfo(hashlib.sha256(tokenizer).hexdigest(), 272, 256, (257,), True),
        weights=f"graphs/weights/{precision}.safetensors",
        graphs=graph_files,
        files=listing(folder),
        databases={name: f"db/{name}.fdb" for name in databases},
    )
    write(folder / FILE_NAME, manifest.to_bytes())
    return folder


def listing(folder: Path) -> dict[str, FileInfo]:
    """The ``files`` of a manifest, for what is in the folder."""
    found = {}
    for path in sorted(p for p in folder.rglob("*") if p.is_file() and p.name != FILE_NAME):
        data = path.read_bytes()
        found[path.relative_to(folder).as_posix()] = FileInfo(len(data), hashlib.sha256(data).hexdigest())
    return found


def safetensors(size: int, seed: int = 0) -> bytes:
    """A valid file whose one tensor has ``size`` random bytes."""
    header = json.dumps({"head.weight": {"dtype": "U8", "shape": [size], "data_offsets": [0, size]}}).encode()
    return len(header).to_bytes(8, "little") + header + np.random.default_rng(seed).bytes(size)


def graph(location: str, length: int, *, offset: int = 0, doc: str = "") -> bytes:
    """An ONNX model with one external initializer."""
    tensor = onnx.TensorProto(name="w", dims=[length], data_type=onnx.TensorProto.UINT8)
    tensor.data_location = onnx.TensorProto.EXTERNAL
    for key, value in {"location": location, "offset": str(offset), "length": str(length)}.items():
        tensor.external_data.add(key=key, value=value)
    node = onnx.helper.make_node("Identity", ["w"], ["out"])
    out = onnx.helper.make_tensor_value_info("out", onnx.TensorProto.UINT8, [length])
    body = onnx.helper.make_graph([node], "g", [], [out], initializer=[tensor], doc_string=doc)
    return onnx.helper.make_model(body).SerializeToString()


def write(path: Path, data: bytes) -> None:
    """Write a file and the folders above it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


def make_keys(folder: Path, name: str = "key", curve: ec.EllipticCurve | None = None) -> tuple[Path, Path]:
    """A new key pair in PEM files -> (private, public)."""
    folder.mkdir(parents=True, exist_ok=True)
    key = ec.generate_private_key(curve or ec.SECP256R1())
    private, public = folder / f"{name}.pem", folder / f"{name}.pub"
    private.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    public.write_bytes(key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))
    return private, public


def edit_manifest(folder: Path, **changes: object) -> None:
    """Replace top-level values of a bundle's manifest, as an attacker would: with no check at all."""
    path = folder / FILE_NAME
    value = json.loads(path.read_bytes())
    path.write_text(json.dumps({**value, **changes}))
