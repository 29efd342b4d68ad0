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
_HUB, _HUB_HOST = "docker.io", "registry-1.docker.io"
"""What Docker Hub is called, and where it answers."""
_HUB_NAMES = (_HUB, "index.docker.io", _HUB_HOST)
_HUB_LOGIN = "https://index.docker.io/v1/"
"""The name under which docker keeps a login to Docker Hub."""
_LOOPBACK = re.compile(r"localhost|127(\.[0-9]+){3}|\[::1\]")


@dataclass(frozen=True, slots=True)
class RegistryReference:
    """``registry`` is host and port; ``digest``, if given, decides, and the tag is only a note.

    Docker Hub is ``docker.io`` here, whatever name it was given, and has no repositories of one part.
    """

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
    def host(self) -> str:
        """Host and port that requests go to."""
        return _HUB_HOST if self.registry == _HUB else self.registry

    @property
    def logins(self) -> tuple[str, ...]:
        """The names that docker's config.json may hold a login under; the first is docker's own."""
        return (_HUB_LOGIN, *_HUB_NAMES) if self.registry == _HUB else (self.registry,)

    @property
    def loopback(self) -> bool:
        """Whether the registry is this machine, where plain HTTP tells nobody anything."""
        return _LOOPBACK.fullmatch(self.host.rpartition(":")[0] or self.host) is not None


def parse(text: str) -> RegistryReference:
    """Read a reference; raises RegistryError if it is none."""
    reference = try_parse(text)
    if reference is None:
        raise RegistryError(
            f"{text[:300]}: not the name of a bundle in a registry, expected HOST/NAME[:TAG], "
            "such as ghcr.io/me/smollm2:int4"
        )
    return reference


def try_parse(text: str) -> RegistryReference | None:
    """Read a reference, or None. Without a dot or a port the first part must be ``localhost``, or it is a
    path.
    """
    found = _REFERENCE.fullmatch(text)
    if found is None or len(text) > 512:
        return None
    host, port = found["host"], found["port"]
    if port is None and "." not in host and ":" not in host and host != "localhost":
        return None
    registry, repository = f"{host}:{port}" if port else host, found["repository"]
    if registry in _HUB_NAMES:
        registry = _HUB
        repository = repository if "/" in repository else f"library/{repository}"
    return RegistryReference(registry, repository, found["tag"] or "latest", found["digest"])
