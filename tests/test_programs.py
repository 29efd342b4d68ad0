"""Tests that need a program of the system are skipped by name, fail in CI, and are summed up at the end."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import programs
from tests.programs import PROGRAMS, main, needs, summary


def test_without_a_program_a_test_is_skipped_and_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.delenv("CI", raising=False)
    for program in PROGRAMS:
        with pytest.raises(pytest.skip.Exception, match=f"{program.name}; .*apt-get install {program.package}"):
            needs(program.name)


def test_in_ci_a_missing_program_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match="docker-registry"):
        needs("docker-registry")


def test_a_program_that_is_there_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "chromium"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert needs("chromium") == str(program)


def test_the_summary_counts_by_program() -> None:
    reasons = ["Skipped: needs the program chromium; ..."] * 3 + ["Skipped: another reason"]
    assert summary(reasons) == ["chromium: 3 tests skipped (the chat page in a real browser); apt-get install chromium"]


def test_set_up_without_rights_names_what_is_missing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    main()
    said = capsys.readouterr().err
    assert all(f"apt-get install {program.package}" in said for program in PROGRAMS)


def test_a_package_that_cannot_be_installed_keeps_no_other_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """As on Ubuntu, which has no chromium: asked for all at once, apt-get would install nothing."""
    apt_get = tmp_path / "apt-get"
    apt_get.write_text(
        f"""#!/bin/sh
echo "$*" >> {tmp_path}/asked
case "$*" in *chromium) echo "E: Package 'chromium' has no installation candidate" >&2; exit 100;; esac
[ "$1" = update ] && exit 0
for package; do :; done
echo '#!/bin/sh' > {tmp_path}/$package && /bin/chmod +x {tmp_path}/$package
"""
    )
    apt_get.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(programs.os, "geteuid", lambda: 0)
    main()
    said = capfd.readouterr().err
    assert (tmp_path / "asked").read_text().splitlines() == [
        "update -qq",
        *[f"install -y -qq {program.package}" for program in PROGRAMS],
    ]
    assert "apt-get could not install chromium;" in said and "no installation candidate" in said
    assert said.count("could not install") == 1
    assert "chromium is not installed" in said and "curl is not installed" not in said
    assert needs("docker-registry") == str(tmp_path / "docker-registry")
