"""``make check-gpu``: everything about the GPU backend that only a GPU can show, in one table.

    python -m benchmarks.gpu.check_gpu [BUNDLE] [--json OUT]

On a machine without one it says what it would have done, and that it has not. Exits with 1 if a check failed.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from pathlib import Path

from benchmarks.gpu.engine_check import STEPS, Subject, check
from benchmarks.gpu.report import Report
from foredraft import Bundle
from foredraft.engines.cuda.device import Device
from foredraft.engines.select import open_device
from foredraft.engines.tensorrt.libraries import LIBRARIES, installed_version, library, load
from foredraft.engines.tensorrt.match import find
from foredraft.errors import ForedraftError

KERNELS = "kernels"


def main(arguments: list[str] | None = None) -> int:
    """Run what can be run here; returns the exit code."""
    options = _options(arguments)
    report = Report()
    try:
        device = open_device()
    except ForedraftError as error:
        _not_run(report, str(error))
    else:
        _about(report, device)
        _check_engines(report, device, options.bundle)
        _check_kernels(report)
    print(report.text())
    if options.json:
        report.write(options.json)
    return 1 if report.failed else 0


def _about(report: Report, device: Device) -> None:
    version = f"driver for CUDA {device.driver_version // 1000}.{device.driver_version % 1000 // 10}"
    report.add("device", str(device), f"{device.memory / 2**30:.0f} GiB, {version}")
    for chosen in LIBRARIES.values():
        report.add("device", chosen.name, installed_version(chosen) or "not installed")


def _check_engines(report: Report, device: Device, path: Path | None) -> None:
    """The bundle's engines, if there is one and it has some for this device."""
    try:
        if path is None:
            raise ForedraftError("no bundle was given; export one for this device and pass its folder")
        bundle = Bundle.open(path)
        name = find(bundle, device)
        trt = load(library(bundle.manifest.engines[name].library))
    except ForedraftError as error:
        for step, work in STEPS.items():
            report.skip(step, _what(work), str(error))
        return
    report.add("engines", name, bundle.manifest.model.name)
    check(Subject(bundle, name, device, trt), report)


def _check_kernels(report: Report) -> None:
    """Our attention kernels by themselves, through torch and Triton, also where the library does not run."""
    with report.guarded(KERNELS):
        try:
            module = importlib.import_module("benchmarks.gpu.kernel_check")
        except ModuleNotFoundError as error:
            report.skip(KERNELS, "the attention kernels alone", f"{error.name} is not installed")
            return
        good = module.check(lambda line: report.add(KERNELS, "", line))
        report.add(KERNELS, "all of them", "as they should be" if good else "see above", good)


def _not_run(report: Report, reason: str) -> None:
    for step, work in STEPS.items():
        report.skip(step, _what(work), reason)
    report.skip(KERNELS, "The attention kernels alone, through torch and Triton.", reason)


def _what(work: object) -> str:
    return (work.__doc__ or "").splitlines()[0]


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("bundle", type=Path, nargs="?", help="a bundle with engines for this device")
    parser.add_argument("--json", type=Path, help="write the lines here, too")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
