"""The options of ``foredraft export`` that concern exits."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from safetensors import safe_open

from foredraft import Bundle
from foredraft.errors import ForedraftError
from foredraft_exporter.exits.adapters import write_adapters
from foredraft_exporter.export_command import export as command
from tests.exporter.exits.helpers import LAYERSKIP, model_of, random_adapter


def test_adapters_and_draft_vocabulary(tmp_path: Path) -> None:
    adapters, text, out = tmp_path / "exits.safetensors", tmp_path / "text.txt", tmp_path / "out.foredraft"
    write_adapters(adapters, {2: random_adapter(192, rank=64)}, model_of(LAYERSKIP))
    text.write_text("xylophone " * 50)
    arguments = [str(LAYERSKIP), "--out", str(out), "--exits", "2,4", "--adapters", str(adapters)]
    arguments += ["--draft-vocab", "300", "--draft-vocab-text", str(text)]
    result = CliRunner().invoke(command, arguments, catch_exceptions=False)
    assert result.exit_code == 0
    assert "adapters for exits 2\n" in result.stderr
    assert "exits draft from 320 of 2048 tokens" in result.stderr
    bundle = Bundle.open(out)
    with safe_open(out / bundle.manifest.weights, framework="numpy") as file:
        ids = file.get_tensor("draft_head.ids")
        assert file.metadata()["model"] == model_of(LAYERSKIP)
    wanted = bundle.tokenizer.encode("xylophone xylophone")
    assert max(wanted) >= 320  # not among the first by the tokenizer's own order
    assert np.isin([0, *wanted], ids).all()
    bundle.verify()


def test_a_bundle_without_exits_has_neither(tiny_folder: Path, tmp_path: Path) -> None:
    CliRunner().invoke(command, [str(tiny_folder), "--out", str(tmp_path / "out")], catch_exceptions=False)
    files = Bundle.open(tmp_path / "out").manifest.files
    assert not [name for name in files if "draft" in name]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--exits", "2", "--draft-vocab", "few"], "auto or none"),
        (["--draft-vocab", "64"], "give --exits"),
        (["--exits", "2", "--draft-vocab-text", "README.md"], "no draft vocabulary here"),
        (["--exits", "2", "--adapters", "missing.safetensors"], "missing.safetensors: cannot be read"),
        (["--exits", "2", "--lens", "missing"], "missing: no such folder"),
        (["--exits", "2,1"], "larger than the one before"),
        (["--exits", "1,1"], "larger than the one before"),
        (["--exits", "7"], "this model has 4 layers"),
    ],
)
def test_what_does_not_fit_is_one_line(tiny_folder: Path, tmp_path: Path, arguments: list[str], says: str) -> None:
    with pytest.raises(ForedraftError) as error:
        CliRunner().invoke(
            command, [str(tiny_folder), "--out", str(tmp_path / "out"), *arguments], catch_exceptions=False
        )
    assert says in str(error.value)
    assert "\n" not in str(error.value)
    assert not (tmp_path / "out").exists()
