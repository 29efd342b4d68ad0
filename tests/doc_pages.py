"""Reads README.md and docs/*.md: blocks, links, headings, inline code. Knows nothing of what is in them.

Conventions of the pages: an indented block holds shell commands or, rarely, something else (a tree of files, a
formula); fenced blocks are Python, JSON or output.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


@dataclass(frozen=True, slots=True)
class Block:
    """``kind`` is "indented", or a fence's language ("" if it says none); ``line`` is where its text starts."""

    kind: str
    line: int
    text: str

    def commands(self) -> list[list[str]]:
        """A shell block's lines in words; a line that ends with a backslash goes on in the next."""
        return [
            shlex.split(line, comments=True) for line in self.text.replace("\\\n", " ").splitlines() if line.strip()
        ]


@dataclass(frozen=True, slots=True)
class Page:
    """``prose`` is the text without blocks."""

    path: Path
    blocks: tuple[Block, ...]
    prose: str

    @property
    def name(self) -> str:
        return self.path.name if self.path.parent != ROOT else f"/{self.path.name}"

    def links(self) -> list[str]:
        """Targets of links and images."""
        return re.findall(r"\]\(([^)\s]+)\)", self.prose) + re.findall(r"^\[[^]]+\]: (\S+)", self.prose, re.M)

    def anchors(self) -> set[str]:
        """Headings as GitHub turns them into anchors."""
        headings = re.findall(r"^#+ (.*)$", self.prose, re.M)
        return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}

    def code(self) -> list[str]:
        """Inline code, with line ends as spaces."""
        return [" ".join(code.split()) for code in re.findall(r"`([^`]+)`", self.prose)]


@cache
def read(path: Path) -> Page:
    """Split a page into blocks and prose. An indented block starts after an empty line."""
    blocks: list[Block] = []
    prose: list[str] = []
    lines = path.read_text(encoding="utf-8").splitlines()
    index = 0
    while index < len(lines):
        line = lines[index]
        if line.startswith("```"):
            end = lines.index("```", index + 1)
            blocks.append(Block(line[3:], index + 2, "\n".join(lines[index + 1 : end])))
            index = end + 1
        elif line.startswith("    ") and (index == 0 or not lines[index - 1].strip()):
            end = index
            while end < len(lines) and (lines[end].startswith("    ") or not lines[end].strip()):
                end += 1
            text = "\n".join(text[4:] for text in lines[index:end]).rstrip()
            blocks.append(Block("indented", index + 1, text))
            prose.append("")
            index = end
        else:
            prose.append(line)
            index += 1
    return Page(path, tuple(blocks), "\n".join(prose))
