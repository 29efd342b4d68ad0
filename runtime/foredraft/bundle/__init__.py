"""The bundle, seen by the runtime: what is in it, and the checks before anything of it is used."""

from foredraft.bundle.opening import Bundle, Progress

__all__ = ["Bundle", "Progress"]
