"""How long tests wait: so long that only what never happens is late, on a busy machine too.

``FOREDRAFT_TEST_PATIENCE`` multiplies every limit, for slow or very busy machines. No test asserts seconds.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

PATIENCE = float(os.environ.get("FOREDRAFT_TEST_PATIENCE", "1"))
LIMIT = 120 * PATIENCE
"""Seconds that one thing may take: a process to start or to end, an answer, an event."""
TEST_LIMIT = 600 * PATIENCE
"""Seconds that a whole test may take."""


def until(condition: Callable[[], T], what: str, *, pause: float = 0.02) -> T:
    """The first value of ``condition()`` that is true; fails with ``what`` if there is none in ``LIMIT`` seconds."""
    end = time.monotonic() + LIMIT
    while not (value := condition()):
        if time.monotonic() > end:
            raise AssertionError(f"not within {LIMIT:g} s: {what} (FOREDRAFT_TEST_PATIENCE makes limits longer)")
        time.sleep(pause)
    return value
