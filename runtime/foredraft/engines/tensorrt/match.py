"""Which of a bundle's engines this machine can run, and for each other one why not. Decided before any is opened."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from foredraft.bundle import Bundle
from foredraft.bundle.manifest import EngineSet
from foredraft.engines.cuda.device import Device
from foredraft.engines.tensorrt.libraries import LIBRARIES, installed_version, library
from foredraft.errors import BundleError, EngineError
from foredraft_plugins.tree_attention.gpu.images import Images, PluginError

Versions = Mapping[str, str | None]
"""Installed version by the library's name; None where it is not installed."""


@dataclass(frozen=True, slots=True)
class Place:
    """What engines must fit: the device by name and target ("sm89"), and the libraries that are installed."""

    device: str
    target: str
    versions: Versions


def find(bundle: Bundle, device: Device) -> str:
    """The name of the first of the bundle's engines that the device can run.

    Raises EngineError with a reason for each where there is none.
    """
    reasons = problems(bundle, device)
    usable = [name for name, reason in reasons.items() if reason is None]
    if usable:
        return usable[0]
    if not reasons:
        raise EngineError(
            f"{bundle.path}: has no engines for {device}; build them with: {rebuild(bundle, device.target, None)}"
        )
    raise EngineError("; ".join(f"engines {name}: {reason}" for name, reason in reasons.items()))


def problems(bundle: Bundle, device: Device) -> dict[str, str | None]:
    """For each set of engines of the bundle, why this machine cannot run it; None if it can."""
    wanted = {engines.library for engines in bundle.manifest.engines.values()}
    versions = {name: installed_version(library(name)) for name in wanted}
    place = Place(str(device), device.target, versions)

    def images(engines: EngineSet) -> Images:
        return read_images(bundle, engines)

    return {
        name: problem(engines, place, images, rebuild(bundle, device.target, engines))
        for name, engines in bundle.manifest.engines.items()
    }


def problem(engines: EngineSet, place: Place, images: Callable[[EngineSet], Images], command: str) -> str | None:
    """Why these engines cannot run at ``place``, in one line that names both sides and what to do; None if they can."""
    chosen, version = library(engines.library), place.versions[engines.library]
    if version is None:
        return f"need {chosen.name} {engines.version}, which is not installed; pip install 'foredraft[{chosen.extra}]'"
    if place.target not in engines.targets:
        return f"built for {', '.join(engines.targets)}, this device is {place.device}; {command}"
    if version != engines.version:
        return f"built with {chosen.name} {engines.version}, installed here is {version}; {command}"
    if engines.attention == "plugin":
        try:
            images(engines).of_device(int(place.target.removeprefix("sm")))
        except (PluginError, BundleError) as error:
            return f"{engines.plugin}: {error}; {command}"
    return None


def rebuild(bundle: Bundle, target: str, engines: EngineSet | None) -> str:
    """The command that builds engines for ``target``, by the library of ``engines`` if that compiles for it."""
    able = [chosen for chosen in LIBRARIES.values() if target in chosen.targets]
    if engines is not None and library(engines.library) in able:
        able = [library(engines.library)]
    if not able:
        return f"no library builds for {target}: run on the CPU with --device cpu"
    return f"foredraft build {bundle.path} --backend {able[0].name} --targets {target}"


def read_images(bundle: Bundle, engines: EngineSet) -> Images:
    """The attention plugin's kernels, each file's hash checked. Raises BundleError or PluginError."""
    return Images.read(lambda name: bundle.read(f"{engines.plugin}/{name}"))
