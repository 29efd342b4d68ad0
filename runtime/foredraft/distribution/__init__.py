"""A bundle on its way: packed, signed, pushed to a registry, pulled from one. Imports no engine.

``resolve`` and ``open_bundle`` turn what a user names (a folder, or a registry reference pulled before) into
a bundle without touching the network.
"""

from foredraft.distribution.store import open_bundle, resolve

__all__ = ["open_bundle", "resolve"]
