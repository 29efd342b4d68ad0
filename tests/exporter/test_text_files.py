"""What is known of a model's text before its weights are read: refused, or said."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from tokenizers import AddedToken

from foredraft.bundle import Bundle
from foredraft.databases.building import build_database
from foredraft.databases.identity import open_tokenizer
from foredraft.databases.sources import read_documents
from foredraft.errors import CheckpointError, RequestError
from foredraft.session import Session
from foredraft_exporter import build as build_module
from foredraft_exporter.build import export, prepare
from foredraft_exporter.export_command import export as command
from tests.fixtures import VOCABULARY, byte_tokenizer, tiny_checkpoint, tiny_gguf

PAD = VOCABULARY


@pytest.fixture(autouse=True)
def no_weights(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """Fails a test in which a refused export came to the weights."""
    if "refused" in request.node.name:
        monkeypatch.setattr(build_module, "write_weights", lambda *_: pytest.fail("weights were read"))


def _with_pads(folder: Path, count: int = 1) -> Path:
    tokenizer = byte_tokenizer()
    tokenizer.add_tokens([AddedToken(f"[PAD{i or ''}]", special=True, normalized=False) for i in range(count)])
    (folder / "tokenizer.json").write_text(tokenizer.to_str())
    return folder


def _write(folder: Path, name: str, **values: Any) -> None:
    path = folder / name
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


def _warnings(source: Path) -> tuple[str, ...]:
    return prepare(source).text.warnings


def test_a_usual_model_has_no_warnings(tmp_path: Path) -> None:
    assert _warnings(tiny_checkpoint(tmp_path / "m")) == ()
    assert _warnings(tiny_gguf(tmp_path / "m.gguf")) == ()


@pytest.mark.parametrize(("count", "said"), [(1, "'[PAD]' (272);"), (7, "'[PAD4]' (276) and 2 more;")])
def test_tokens_that_were_added_later_are_named(tmp_path: Path, count: int, said: str) -> None:
    (warning,) = _warnings(_with_pads(tiny_checkpoint(tmp_path / "m"), count))
    assert said in warning


def test_a_bundle_whose_tokenizer_is_larger_refuses_only_these_tokens(tmp_path: Path) -> None:
    folder = _with_pads(tiny_checkpoint(tmp_path / "m"))
    result = CliRunner().invoke(command, [str(folder), "--out", str(tmp_path / "b")])
    assert result.exit_code == 0
    assert "warning: the tokenizer has tokens that the model has not: '[PAD]' (272)" in result.stderr.replace("\n", " ")
    bundle = Bundle.open(tmp_path / "b")
    session = Session(bundle, "none", threads=1)
    plain = session.generate("ab", max_tokens=20).tokens
    for given in ("a[PAD]", [97, PAD]):
        with pytest.raises(
            RequestError, match=r"token id 272 \('\[PAD\]'\) in the prompt: this model has ids 0 to 271"
        ):
            session.generate(given)
    with pytest.raises(RequestError, match=r"'\[PAD\]'"):
        session.generate(messages=[{"role": "user", "content": "a[PAD]"}])
    text = tmp_path / "text.txt"
    text.write_text("ab[PAD]" + bundle.tokenizer.decode(plain) + "[PAD][PAD]")
    tokenizer, identity = open_tokenizer(bundle.path)
    documents = list(read_documents([text], tokenizer, identity.vocab_size))
    assert PAD not in [token for document in documents for token in document.tolist()]
    assert documents[0].tolist() == bundle.tokenizer.encode("ab", add_bos=False)
    build_database(tmp_path / "d.fdb", "corpus", documents, identity)
    learning = Session(bundle, "blend", threads=1, databases=[tmp_path / "d.fdb"], learn=tmp_path / "log")
    assert learning.generate("ab", max_tokens=20).tokens == plain


def test_a_tokenizer_of_another_model_is_refused(tmp_path: Path) -> None:
    folder = tiny_checkpoint(tmp_path / "m", vocab_size=250)
    with pytest.raises(
        CheckpointError, match=r"has 272 tokens, the model 250, and .* \(id 250\) is none that was added"
    ):
        export(folder, tmp_path / "b")


@pytest.mark.parametrize("ends", [{}, {"eos_token_id": 9999}])
def test_no_end_at_all_is_said(tmp_path: Path, ends: dict[str, int]) -> None:
    folder = tiny_checkpoint(tmp_path / "m", eos_token_id=None)
    (folder / "generation_config.json").write_text(json.dumps(ends))
    _write(folder, "tokenizer_config.json", eos_token=None)
    warnings = _warnings(folder)
    assert "no token ends a text" in warnings[-1]
    assert prepare(folder).text.tokenizer.eos_ids == ()
    assert [w for w in warnings if "eos_token_id 9999: left out" in w] == list(warnings[:-1])


def test_no_end_in_gguf_is_said(tmp_path: Path) -> None:
    path = tiny_gguf(tmp_path / "m.gguf", metadata={"tokenizer.ggml.eos_token_id": 9999})
    assert [warning.split(":")[0] for warning in _warnings(path)] == ["eos_token_id 9999", "no token ends a text"]


def test_a_beginning_that_the_model_has_not_is_refused(tmp_path: Path) -> None:
    folder = tiny_checkpoint(tmp_path / "m", bos_token_id=9999)
    (folder / "generation_config.json").write_text("{}")
    _write(folder, "tokenizer_config.json", bos_token=None)
    with pytest.raises(
        CheckpointError,
        match=r"config\.json: bos_token_id: prompts begin with id 9999, but .* ids 0 to 271",
    ):
        export(folder, tmp_path / "b")
    _write(folder, "tokenizer_config.json", add_bos_token=False)
    assert prepare(folder).text.tokenizer.bos_id is None


TEMPLATES = {
    "{% for m in messages %}": "Unexpected end of template",
    "{{ messages[0].content | nosuch }}": "No filter named 'nosuch'",
    "{{ bos_token }}Hello": "loses the text of a user message",
    "{{ raise_exception('never') }}": "refuses a message that only says one word",
}


@pytest.mark.parametrize(("source", "said"), TEMPLATES.items(), ids=["syntax", "filter", "loses", "refuses"])
@pytest.mark.parametrize("kind", ["config", "jinja", "json", "gguf"])
def test_a_template_that_cannot_serve_is_refused(tmp_path: Path, kind: str, source: str, said: str) -> None:
    if kind == "gguf":
        model = tiny_gguf(tmp_path / "m.gguf", metadata={"tokenizer.chat_template": source})
    else:
        model = tiny_checkpoint(tmp_path / "m")
        _write(model, "tokenizer_config.json", chat_template=source if kind == "config" else None)
        if kind == "jinja":
            (model / "chat_template.jinja").write_text(source)
        if kind == "json":
            (model / "chat_template.json").write_text(json.dumps({"chat_template": source}))
    named = {"config": "tokenizer_config.json: chat_template", "jinja": "chat_template.jinja"}
    named |= {"json": "chat_template.json: chat_template", "gguf": "m.gguf: tokenizer.chat_template"}
    with pytest.raises(CheckpointError, match=f"{re.escape(named[kind])}: chat template.*{said}"):
        export(model, tmp_path / "b")
    assert not (tmp_path / "b").exists()


def test_a_template_without_system_messages_is_said(tmp_path: Path) -> None:
    folder = tiny_checkpoint(tmp_path / "m")
    source = "{% for m in messages if m.role != 'system' %}{{ m.content }}{% endfor %}"
    _write(folder, "tokenizer_config.json", chat_template=source)
    assert _warnings(folder) == (
        "the chat template leaves out system messages: what they say does not reach the model",
    )
