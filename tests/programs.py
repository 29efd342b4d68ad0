"""Programs of the system that some tests need, in one table.

``python3 tests/programs.py`` installs the missing ones where it may (as root, with apt-get), and elsewhere says how to
get them. A test asks with ``needs``: without its program it is skipped, and with ``CI=true`` it fails.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Program:
    """A program, the Debian package that brings it, and what tests do with it."""

    name: str
    package: str
    purpose: str


PROGRAMS = (
    Program("docker-registry", "docker-registry", "push to and pull from a real registry"),
    Program("chromium", "chromium", "the chat page in a real browser"),
    Program("chromedriver", "chromium-driver", "drives that browser"),
    Program("curl", "curl", "the server's documented requests"),
    Program("systemd-analyze", "systemd", "reads the service's unit file"),
)
_SKIPPED = "needs the program "


def needs(name: str) -> str:
    """Path of a program of the table; without it the test that asks is skipped, or with ``CI=true`` fails."""
    import pytest

    program = next(known for known in PROGRAMS if known.name == name)
    path = shutil.which(name)
    if path is None:
        message = f"{_SKIPPED}{name}; install it with: apt-get install {program.package}"
        if os.environ.get("CI") == "true":
            pytest.fail(message)
        pytest.skip(message)
    return path


def summary(reasons: Iterable[str]) -> list[str]:
    """One line for each missing program, given the reasons why tests were skipped."""
    counts = Counter(program for reason in reasons for program in PROGRAMS if f"{_SKIPPED}{program.name};" in reason)
    return [
        f"{program.name}: {count} tests skipped ({program.purpose}); apt-get install {program.package}"
        for program, count in counts.items()
    ]


def missing() -> list[Program]:
    """Those that are not on the PATH."""
    return [program for program in PROGRAMS if shutil.which(program.name) is None]


def _install(programs: list[Program]) -> None:
    """One package at a time, so that one that cannot be had keeps none of the others away."""
    _apt_get("update", "-qq")
    for program in programs:
        print(f"installing what tests need of the system: {program.package}", flush=True)
        if not _apt_get("install", "-y", "-qq", program.package):
            print(f"apt-get could not install {program.package}; its last words are above", file=sys.stderr, flush=True)


def _apt_get(*arguments: str) -> bool:
    quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    return subprocess.run(["apt-get", *arguments], check=False, env=quiet, stdout=subprocess.DEVNULL).returncode == 0


def main() -> None:
    """Install or name what is missing; never a reason to stop: tests without their program are skipped."""
    wanted = missing()
    if wanted and os.geteuid() == 0 and shutil.which("apt-get"):
        _install(wanted)
    for program in missing():
        print(
            f"{program.name} is not installed: tests that need it ({program.purpose}) are skipped; "
            f"to run them: apt-get install {program.package}",
            file=sys.stderr,
        )


if __name__ == "__main__":
    main()
