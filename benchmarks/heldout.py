"""Prompts for layerskip-tiny: passages of the standard library files that were left out of its training.

    python benchmarks/heldout.py --out heldout.jsonl [--prompts 16] [--characters 400]

Run it with CPython 3.11, whose library the model was trained on. Each file gives its beginning, then passages from
further in, in turn, until there are enough.
"""

from __future__ import annotations

import argparse
import json
import sysconfig
from pathlib import Path

BEGINNING = "<|endoftext|>"
HELD_OUT = (
    "multiprocessing/managers.py", "gzip.py", "email/headerregistry.py", "_collections_abc.py", "ftplib.py",
    "warnings.py", "selectors.py", "idlelib/debugger.py", "lib2to3/pgen2/driver.py", "turtledemo/tree.py",
    "email/encoders.py", "lib2to3/pygram.py", "ensurepip/_uninstall.py", "antigravity.py",
)  # fmt: skip
STEP = 3000
"""Characters between the passages of a file."""


def passages(library: Path, characters: int) -> list[dict[str, str]]:
    """All passages: every file's beginning, then every file's second passage, and so on."""
    found = []
    for name in HELD_OUT:
        text = (library / name).read_text(encoding="utf-8")
        for number, start in enumerate(range(0, max(len(text) - 2 * characters, 1), STEP)):
            start = text.rfind("\n", 0, start) + 1
            passage = text[start : start + characters].rpartition("\n")[0]
            category = "further in" if number else "beginning"
            found.append(
                (number, {"category": category, "question_id": f"{name}:{start}", "prompt": BEGINNING + passage})
            )
    return [passage for _, passage in sorted(found, key=lambda item: item[0])]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--prompts", type=int, default=16)
    parser.add_argument("--characters", type=int, default=400)
    options = parser.parse_args()
    chosen = passages(Path(sysconfig.get_paths()["stdlib"]), options.characters)[: options.prompts]
    options.out.write_text("".join(json.dumps(passage) + "\n" for passage in chosen), encoding="utf-8")
    print(f"wrote {len(chosen)} prompts to {options.out}")


if __name__ == "__main__":
    main()
