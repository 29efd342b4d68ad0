"""Where drafts come from. Every drafter implements ``drafters.base.Drafter``; none can change the text."""

from __future__ import annotations

import difflib
import importlib
import inspect
from typing import Any, cast

from foredraft.drafters.base import Drafter
from foredraft.errors import RequestError

_CLASSES = {
    "context": ("foredraft.drafters.context", "ContextDrafter"),
    "prompt-lookup": ("foredraft.drafters.prompt_lookup", "PromptLookup"),
    "none": ("foredraft.drafters.none", "NoDrafter"),
}


def names() -> tuple[str, ...]:
    """Names that ``create`` knows."""
    return tuple(_CLASSES)


def create(name: str, **options: Any) -> Drafter:
    """A new drafter for one sequence; ``options`` are its own settings.

    Raises RequestError for a name or an option that does not exist.
    """
    if name not in _CLASSES:
        close = difflib.get_close_matches(str(name), _CLASSES, 1)
        hint = f"; did you mean {close[0]!r}?" if close else ""
        raise RequestError(f"drafter: got {name!r}, expected one of {', '.join(_CLASSES)}{hint}")
    module, class_name = _CLASSES[name]
    kind = getattr(importlib.import_module(module), class_name)
    known = inspect.signature(kind).parameters
    if unknown := sorted(set(options) - set(known)):
        raise RequestError(
            f"drafter {name}: no option {unknown[0]!r}, expected {', '.join(known) or 'no options'}"
        )
    return cast(Drafter, kind(**options))
