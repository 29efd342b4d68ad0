"""Token databases and adapters added to a finished bundle."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from foredraft.bundle import Bundle
from foredraft.bundle.parts import partial_bytes
from foredraft.cli import cli
from foredraft.databases.building import Identity, build_database
from foredraft.distribution.add import add_adapter, add_database
from foredraft.distribution.sign import sign
from foredraft.errors import BundleError, DatabaseError, SignatureError
from tests.runtime.distribution.made import make_keys, safetensors, write


def make_database(path: Path, tokenizer: str, vocab_size: int = 272) -> Path:
    """A database of a few tokens."""
    path.parent.mkdir(parents=True, exist_ok=True)
    documents = [np.array([1, 2, 3, 4] * 20, np.uint32)]
    build_database(path, "corpus", documents, Identity(tokenizer, vocab_size))
    return path


@pytest.fixture
def database(bundle: Path, tmp_path: Path) -> Path:
    return make_database(tmp_path / "files" / "wiki.fdb", Bundle.open(bundle).manifest.tokenizer.sha256)


def test_a_database_is_added_and_the_signature_goes(bundle: Path, database: Path, tmp_path: Path) -> None:
    private, public = make_keys(tmp_path)
    sign(Bundle.open(bundle), private)
    added = add_database(Bundle.open(bundle, key=public), database)
    assert added.manifest.databases == {"words": "db/words.fdb", "wiki": "db/wiki.fdb"}
    added.verify()
    with pytest.raises(SignatureError, match="is not signed; sign it with"):
        Bundle.open(bundle, key=public)
    sign(added, private)
    Bundle.open(bundle, key=public)


def test_one_of_the_same_name_is_replaced(bundle: Path, database: Path, tmp_path: Path) -> None:
    add_database(Bundle.open(bundle), database)
    other = make_database(tmp_path / "x.fdb", Bundle.open(bundle).manifest.tokenizer.sha256)
    assert add_database(Bundle.open(bundle), other, "wiki").complete


def test_a_database_of_another_tokenizer(bundle: Path, tmp_path: Path) -> None:
    with pytest.raises(DatabaseError, match="tokenizer"):
        add_database(Bundle.open(bundle), make_database(tmp_path / "other.fdb", "0" * 64))


def test_names_that_mean_something_else(bundle: Path, database: Path) -> None:
    for name, message in [
        ("kernels", "stands for two things"),
        ("../x", "leaves the folder"),
        ("Big", "is not a name"),
    ]:
        with pytest.raises(BundleError, match=message):
            add_database(Bundle.open(bundle), database, name)
    assert Bundle.open(bundle).complete
    assert not list(bundle.parent.glob(".*"))


def test_an_adapter(bundle: Path, tmp_path: Path) -> None:
    write(tmp_path / "exits.safetensors", safetensors(64))
    assert add_adapter(Bundle.open(bundle), tmp_path / "exits.safetensors").manifest.adapters == {
        "exits": "adapters/exits.safetensors"
    }
    write(tmp_path / "bad.safetensors", b"x" * 100)
    with pytest.raises(BundleError, match="says its header"):
        add_adapter(Bundle.open(bundle), tmp_path / "bad.safetensors")


def test_a_part_of_a_bundle_can_be_added_to(bundle: Path, database: Path) -> None:
    (bundle / "partial.json").write_bytes(partial_bytes(["portable"]))
    added = add_database(Bundle.open(bundle), database)
    assert list(added.manifest.databases) == ["wiki"]
    assert not added.complete


@pytest.mark.parametrize("step", range(4))
def test_it_opens_whenever_it_is_interrupted(
    bundle: Path, database: Path, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    """Each rename is the last one that happens; then the whole is done again."""
    left, rename = step, Path.replace

    def interrupted(self: Path, target: Path) -> Path:
        nonlocal left
        if left == 0:
            raise KeyboardInterrupt
        left -= 1
        return rename(self, target)

    add_database(Bundle.open(bundle), database)
    bigger = make_database(database.parent / "n.fdb", Bundle.open(bundle).manifest.tokenizer.sha256)
    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", interrupted)
        if step < 3:
            with pytest.raises(KeyboardInterrupt):
                add_database(Bundle.open(bundle), bigger, "wiki")
    Bundle.open(bundle).verify()
    assert add_database(Bundle.open(bundle), bigger, "wiki").complete


def test_the_command(bundle: Path, database: Path, tmp_path: Path) -> None:
    sign(Bundle.open(bundle), make_keys(tmp_path)[0])
    done = CliRunner().invoke(cli, ["bundle", "add", str(bundle), "--database", str(database)])
    assert done.exit_code == 0, done.output
    assert "its signature is gone; sign it: foredraft sign" in done.stderr
    assert CliRunner().invoke(cli, ["bundle", "add", str(bundle)]).exit_code == 2
