"""The one family of errors. A message says what, where, got, expected, and what to do."""

from __future__ import annotations


class ForedraftError(Exception):
    """Base of every error that Foredraft raises on purpose; the command line prints it as one line."""


class BundleError(ForedraftError):
    """A bundle that is missing, damaged, changed, or not for this version or machine."""


class CheckpointError(ForedraftError):
    """A source model that cannot be read: missing, truncated, or in a form that is not accepted."""


class UnsupportedModelError(ForedraftError):
    """A model whose architecture or setting has no exact counterpart here."""


class RequestError(ForedraftError):
    """A generation request that cannot be served as asked (prompt, sampling or option)."""


class EngineError(ForedraftError):
    """An engine that cannot be loaded or failed while running."""


class DatabaseError(ForedraftError):
    """A token database or learn log that is missing, damaged, or of another tokenizer or version."""


class SignatureError(BundleError):
    """A bundle that is not signed by the key that was asked for."""


class RegistryError(ForedraftError):
    """A registry that cannot be reached, refuses, or sends something else than was asked for."""
