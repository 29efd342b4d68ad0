"""Names of bundles in registries: ``host[:port]/path[:tag][@sha256:digest]``."""

from __future__ import annotations

import re
from dataclasses import dataclass

from foredraft.errors import RegistryError

_HOST = r"(?P<host>localhost|[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?(?:\.[A-Za-z0-9-]+)*|\[[0-9a-fA-F:]+\])"
_PART = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
_REFERENCE = re.compile(
    rf"(?:oci://?)?{_HOST}(?::(?P<port>[0-9]{{1,5}}))?/(?P<repository>{_PART}(?:/{_PART})*)"
    r"(?::(?P<tag>[A-Za-z0-9_][A-Za-z0-9._-]{0,127}))?(?:@(?P<digest>sha256:[0-9a-f]{64}))?"
)
_LOOPBACK = re.compile(r"localhost|127(\.[0-9]+){3}|\[::1\]")


@dataclass(frozen=True, slots=True)
class Reference:
    """``registry`` is host and port; ``digest``, if given, decides, and the tag is only a note."""

    registry: str
    repository: str
    tag: str
    digest: str | None

    def __str__(self) -> str:
        suffix = f"@{self.digest}" if self.digest else f":{self.tag}"
        return f"{self.registry}/{self.repository}{suffix}"

    @property
    def target(self) -> str:
        """What the registry is asked for."""
        return self.digest or self.tag

    @property
    def loopback(self) -> bool:
        """Whether the registry is this machine, where plain HTTP tells nobody anything."""
        return _LOOPBACK.fullmatch(self.registry.rpartition(":")[0] or self.registry) is not None


def parse(text: str) -> Reference:
    """Read a reference; raises RegistryError if it is none."""
    reference = try_parse(text)
    if reference is None:
        raise RegistryError(
            f"{text[:300]}: not the name of a bundle in a registry, expected HOST/NAME[:TAG], "
            "such as ghcr.io/me/smollm2:int4"
        )
    return reference


def try_parse(text: str) -> Reference | None:
    """Read a reference, or None. Without a dot or a port the first part must be ``localhost``, or it is a
    path.
    """
    found = _REFERENCE.fullmatch(text)
    if found is None or len(text) > 512:
        return None
    host, port = found["host"], found["port"]
    if port is None and "." not in host and ":" not in host and host != "localhost":
        return None
    registry = f"{host}:{port}" if port else host
    return Reference(registry, found["repository"], found["tag"] or "latest", found["digest"])
