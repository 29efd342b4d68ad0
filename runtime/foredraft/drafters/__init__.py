"""Where drafts come from. Every drafter implements ``drafters.base.Drafter``; none can change the text."""

from __future__ import annotations

import difflib
import importlib
import inspect
from typing import Any, cast

from foredraft.drafters.protocol import Drafter
from foredraft.errors import RequestError

_CLASSES: dict[str, tuple[str, str, dict[str, Any]]] = {
    "blend": ("foredraft.drafters.blend.drafter", "Blend", {}),
    "context": ("foredraft.drafters.blend.drafter", "Blend", {"levels": "context"}),
    "pools": ("foredraft.drafters.pools", "Pools", {}),
    "suffix": ("foredraft.drafters.suffix", "Suffix", {}),
    "recycling": ("foredraft.drafters.recycling", "Recycling", {}),
    "prompt-lookup": ("foredraft.drafters.prompt_lookup", "PromptLookup", {}),
    "none": ("foredraft.drafters.none", "NoDrafter", {}),
}
"""Module, class and fixed settings of each; imported when asked for."""
_OFFERED = ("vocab_size", "model", "corpus")
"""What a drafter is given if it can use it; any other setting must be one that it has."""

DEFAULT = "blend"


def names() -> tuple[str, ...]:
    """Names that ``create`` knows."""
    return tuple(_CLASSES)


def create(name: str, **settings: Any) -> Drafter:
    """A new drafter for one sequence.

    ``vocab_size`` and the token databases ``model`` and ``corpus`` are used by the drafters that can; ``levels``,
    ``learn`` and ``log`` are settings of some. Raises RequestError for a name or a setting that does not exist.
    """
    if name not in _CLASSES:
        close = difflib.get_close_matches(str(name), _CLASSES, 1)
        hint = f"; did you mean {close[0]!r}?" if close else ""
        raise RequestError(f"drafter: got {name!r}, expected one of {', '.join(_CLASSES)}{hint}")
    module, class_name, fixed = _CLASSES[name]
    kind = getattr(importlib.import_module(module), class_name)
    known = inspect.signature(kind).parameters
    unknown = sorted(key for key in settings if key not in _OFFERED and (key not in known or key in fixed))
    if unknown:
        raise RequestError(f"drafter {name}: has no setting {unknown[0]!r}; leave it out, or choose another drafter")
    drafter = kind(**fixed, **{key: value for key, value in settings.items() if key in known})
    drafter.name = name
    return cast(Drafter, drafter)
