"""Questions to bench with, from a JSONL file. Knows nothing of models."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from foredraft.errors import RequestError


@dataclass(frozen=True, slots=True)
class Question:
    """One prompt and the category it is counted under."""

    id: str
    category: str
    prompt: str


def read_questions(path: Path, per_category: int | None = None) -> list[Question]:
    """Lines of ``{"prompt": …}`` or Spec-Bench's ``{"turns": […]}`` (the first turn), ``category`` if there is one.

    ``per_category`` keeps the first so many of each category. Raises RequestError naming file and line.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise RequestError(f"{path}: cannot be read ({error.strerror})") from error
    except UnicodeDecodeError as error:
        raise RequestError(f"{path}: not UTF-8 text ({error})") from error
    questions = [_question(line, f"{path}:{n}") for n, line in enumerate(lines, 1) if line.strip()]
    if not questions:
        raise RequestError(f"{path}: holds no questions; expected lines of JSON with 'prompt' or 'turns'")
    return list(_first_of_each(questions, per_category)) if per_category else questions


def _question(line: str, where: str) -> Question:
    try:
        value = json.loads(line)
    except ValueError as error:
        raise RequestError(f"{where}: not JSON ({error})") from error
    prompt = None
    if isinstance(value, dict):
        turns = value.get("turns")
        prompt = turns[0] if isinstance(turns, list) and turns else value.get("prompt")
    if not isinstance(prompt, str) or not prompt:
        raise RequestError(f"{where}: expected an object with 'prompt' or 'turns' (text), got {line[:60]!r}")
    return Question(str(value.get("question_id", where)), str(value.get("category", "all")), prompt)


def _first_of_each(questions: Iterable[Question], count: int) -> Iterable[Question]:
    seen: Counter[str] = Counter()
    for question in questions:
        seen[question.category] += 1
        if seen[question.category] <= count:
            yield question
