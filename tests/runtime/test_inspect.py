"""``foredraft inspect``: the manifest, and what this machine can run."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import foredraft
from foredraft import cli
from foredraft.bundle.manifest import FileInfo, GraphFiles, Manifest, ModelInfo, SegmentInfo, TokenizerInfo
from foredraft.engines import onnxruntime as engine
from foredraft.errors import EngineError

PATHS = ("weights/int8.safetensors", "tokenizer.json", "graphs/segment-0.onnx", "graphs/head.onnx")
MANIFEST = Manifest(
    schema="1.0",
    foredraft="0.1.0",
    model=ModelInfo(
        name="tiny [bold]",
        architecture="llama",
        license=None,
        layers=4,
        hidden_size=64,
        intermediate_size=128,
        heads=4,
        kv_heads=2,
        head_dim=16,
        vocab_size=300,
        context=2048,
    ),
    precision="int8",
    exits=(2,),
    segments=(SegmentInfo(0, 2), SegmentInfo(2, 4)),
    tokenizer=TokenizerInfo("0" * 64, 299, 0, (1,), True),
    weights=PATHS[0],
    graphs={name: GraphFiles((PATHS[2], PATHS[2]), PATHS[3]) for name in ("kernels", "portable")},
    files={path: FileInfo(1_000_000, "ab" * 32) for path in PATHS},
)


@pytest.fixture(autouse=True)
def fakes(monkeypatch: pytest.MonkeyPatch) -> None:
    def choose(bundle: Any, asked: str) -> str:
        if asked == "kernels":
            raise EngineError("kernels were not built here")
        return "portable"

    opened = SimpleNamespace(path=Path("tiny.foredraft"), manifest=MANIFEST)
    monkeypatch.setattr(foredraft, "Bundle", SimpleNamespace(open=lambda path: opened), raising=False)
    monkeypatch.setattr(engine, "choose_lowering", choose)


def test_json_is_the_manifest_and_the_machine(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["inspect", "tiny.foredraft", "--json"]) == 0
    values = json.loads(capsys.readouterr().out)
    machine = values.pop("machine")
    assert values == json.loads(json.dumps(MANIFEST.to_json()))
    assert machine["auto"] == "portable"
    assert machine["lowerings"] == {"kernels": "kernels were not built here", "portable": None}


def test_tables_name_everything(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["inspect", "tiny.foredraft"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    for part in (
        "tiny [bold] (llama)",
        "segments 0-1, 2-3",
        "2,048 tokens",
        "4.0 MB in 4 files",
        "kernels were not built here",
        "ready (chosen by auto)",
        "weights/int8.safetensors",
        "not stated",
    ):
        assert part in text
