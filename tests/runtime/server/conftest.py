"""A tiny model with a long context, served by a real process that most tests share."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from safetensors.numpy import load_file, save_file

from foredraft_exporter.build import export
from tests.fixtures import EOS, tiny_checkpoint
from tests.runtime.server.process import Server
from tests.runtime.tokenizers_for_tests import sentencepiece

Serve = Callable[..., Server]


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bundle of the tiny Llama with a context of 2048 tokens. Read only."""
    folder = tmp_path_factory.mktemp("served")
    checkpoint = tiny_checkpoint(folder / "checkpoint", max_position_embeddings=2048)
    export(checkpoint, folder / "tiny.foredraft")
    return folder / "tiny.foredraft"


@pytest.fixture(scope="session")
def slow(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bundle with many layers that never ends a greedy answer: 2000 tokens take seconds. Read only."""
    folder = tmp_path_factory.mktemp("slow")
    checkpoint = tiny_checkpoint(folder / "checkpoint", max_position_embeddings=2048, num_hidden_layers=64)
    tensors = load_file(checkpoint / "model.safetensors")
    tensors["lm_head.weight"][EOS] = 0
    save_file(tensors, checkpoint / "model.safetensors")
    export(checkpoint, folder / "slow.foredraft")
    return folder / "slow.foredraft"


@pytest.fixture(scope="session")
def start_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serve]:
    """``start_server(bundle, *options)`` -> a server, ended with the tests at the latest.

    Trees are of a fixed size unless the options say otherwise: how much ``auto`` drafts depends on the machine.
    """
    started: list[Server] = []

    def start(bundle: Path, *options: str, environment: dict[str, str] | None = None) -> Server:
        log = tmp_path_factory.mktemp("log") / "server.log"
        drafting = () if "--no-draft" in options else ("--policy", "fixed:8")
        defaults = ("--model-name", "tiny", *drafting)
        started.append(Server(bundle, log, *defaults, *options, environment=environment))
        return started[-1]

    yield start
    for server in started:
        server.stop()


@pytest.fixture(scope="session")
def server(start_server: Serve, tiny: Path) -> Server:
    """A server with default options. Tests leave it as they found it: idle."""
    return start_server(tiny)


@pytest.fixture(scope="session")
def smollm2_server(start_server: Serve, smollm2: Path) -> Server:
    """SmolLM2 with a short queue."""
    return start_server(smollm2, "--queue", "8", "--context", "1024", "--policy", "auto")


@pytest.fixture(scope="session")
def spaces(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bundle whose decoder strips the space before a text's first word, as that of Llama 2 does; it writes words more
    often than bytes. Read only.
    """
    folder = tmp_path_factory.mktemp("spaces")
    checkpoint = tiny_checkpoint(folder / "checkpoint", vocab_size=300)
    (checkpoint / "tokenizer.json").write_bytes(sentencepiece())
    special = {"bos_token": "<s>", "add_bos_token": True}
    (checkpoint / "tokenizer_config.json").write_text(json.dumps(special))
    (checkpoint / "generation_config.json").write_text("{}")
    config = json.loads((checkpoint / "config.json").read_text()) | {"bos_token_id": 0, "eos_token_id": None}
    (checkpoint / "config.json").write_text(json.dumps(config))
    tensors = load_file(checkpoint / "model.safetensors")
    tensors["lm_head.weight"][2:258] /= 2
    save_file(tensors, checkpoint / "model.safetensors")
    export(checkpoint, folder / "spaces.foredraft")
    return folder / "spaces.foredraft"
