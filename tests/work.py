"""Counts work, where a test is about how much of it there is: seconds depend on the machine."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any


def instructions(call: Callable[[], object]) -> int:
    """Instructions of Python's that ``call`` executes; what a C function does counts as one."""
    count = 0

    def trace(frame: FrameType, event: str, _: Any) -> Callable[..., Any]:
        nonlocal count
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        count += event == "opcode"
        return trace

    before, collecting = sys.gettrace(), gc.isenabled()
    gc.collect()
    gc.disable()  # what it calls would be counted
    sys.settrace(trace)
    try:
        call()
    finally:
        sys.settrace(before)
        if collecting:
            gc.enable()
    return count
