"""What a server is started with. A value that can be handed to worker processes as JSON."""

from __future__ import annotations

import dataclasses
import json
import math
from dataclasses import dataclass, field
from typing import Any

from foredraft.errors import RequestError

ENVIRONMENT = "FOREDRAFT_SERVER_SETTINGS"
"""Environment variable through which worker processes get their settings."""


@dataclass(frozen=True, slots=True)
class Settings:
    """Raises RequestError for numbers that make no sense; ``session`` holds keyword arguments of ``Session``."""

    bundle: str
    session: dict[str, Any] = field(default_factory=dict)
    model_name: str | None = None
    """What clients call the model; None: the name in the bundle."""
    api_key: str | None = None
    sequences: int = 4
    """Answers that are written at once."""
    queue: int = 64
    """Answers that may wait beyond that."""
    cache_mb: int = 1024
    """Limit of the prefix cache, in MiB; 0 switches it off."""
    timeout: float = 600.0
    """Seconds that a request may take, waiting included."""
    max_body: int = 2 * 1024 * 1024
    """Longest request body, in bytes."""
    chat_template_kwargs: dict[str, Any] = field(default_factory=dict)
    """Variables of the chat template, for requests that do not set them."""
    split_special_tokens: bool = False
    """Whether special tokens that users spell are plain text, also where a request does not ask for it."""

    def __post_init__(self) -> None:
        for name, low in (("sequences", 1), ("queue", 0), ("cache_mb", 0), ("max_body", 1)):
            if getattr(self, name) < low:
                raise RequestError(f"{name}: got {getattr(self, name)}, expected {low} or more")
        if not (self.timeout > 0 and math.isfinite(self.timeout)):
            raise RequestError(f"timeout: got {self.timeout}, expected a number of seconds above 0")
        if self.api_key is not None and (not self.api_key or not self.api_key.isascii()):
            raise RequestError("api_key: expected ASCII characters, at least one")

    def to_json(self) -> str:
        """For ``from_json``."""
        return json.dumps(dataclasses.asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Settings:
        """Read what ``to_json`` wrote."""
        return cls(**json.loads(text))
