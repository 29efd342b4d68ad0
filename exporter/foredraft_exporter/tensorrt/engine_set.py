"""All engines of a bundle: a worker for each graph, and the attention plugin's kernels. Writes files, no manifest."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from foredraft.bundle.manifest import EngineSet, GraphFiles
from foredraft.cache_folder import cache_folder
from foredraft.engines.cuda.device import Device, load_driver
from foredraft.engines.tensorrt.libraries import load, require_parser
from foredraft.errors import ForedraftError
from foredraft_exporter.tensorrt.build_options import DECODE, PREFILL, BuildOptions, activation_dtype
from foredraft_exporter.tensorrt.header import check_header
from foredraft_exporter.tensorrt.job import BuildJob
from foredraft_exporter.tensorrt.process import Built, build_engine
from foredraft_plugins.tree_attention.gpu.images import AttentionShape, PluginError

Tell = Callable[[str, int, int, float], None]
"""``(what, engines done, engines in all, seconds of this one)``, at least once a second."""
TellOne = Callable[[str, float], None]
"""The same for one engine."""


@dataclass(frozen=True, slots=True)
class EngineReport:
    """What was built: the record for the manifest, and how each file came to be."""

    engines: EngineSet
    built: dict[str, Built]


def require_builder(options: BuildOptions) -> None:
    """Raises before anything is written if the library, its parser, the kernels' compiler or a device is missing."""
    chosen = options.library
    trt = load(chosen)
    require_parser(chosen)
    if chosen.needs_gpu:
        _require_device(options)
    if options.attention == "plugin":
        try:
            import triton  # noqa: F401
        except ImportError as error:
            raise ForedraftError(
                f"--attention plugin: its kernels are compiled with Triton, which is missing ({error}); "
                f"pip install 'foredraft[build-engines]', or use --attention native"
            ) from error
    if not hasattr(trt, "OnnxParser"):
        raise ForedraftError(f"{chosen.name} {trt.__version__}: has no ONNX parser; install the full package")


def build_engines(
    source: Path,
    folder: Path,
    graphs: GraphFiles,
    options: BuildOptions,
    *,
    shape: tuple[int, int, int, int],
    precision: str,
    slots: int,
    tell: Tell | None = None,
) -> EngineReport:
    """Build engines of the graphs in the folder ``source`` into ``engines/NAME/`` of ``folder``.

    ``shape`` is the attention's: heads, heads for K and V, head_dim, rotary_dim; ``slots`` the most cache rows. Raises
    ForedraftError for what cannot be built, naming graph, node and cause.
    """
    target = f"engines/{options.name}"
    (folder / target).mkdir(parents=True)
    dtype = activation_dtype(precision)
    names = {path: f"{target}/{_engine_name(path)}" for path in graphs.paths}
    built: dict[str, Built] = {}
    for index, (graph, engine) in enumerate(names.items()):
        progress = told(tell, index, len(names))
        built[engine] = build_one(source / graph, folder / engine, options, slots, progress)
    plugin = None
    if options.attention == "plugin":
        plugin = f"{target}/tree-attention"
        _write_images(folder / plugin, AttentionShape(*shape), options, dtype, told(tell, len(names), len(names)))
    versions = {result.version for result in built.values()}
    engines = EngineSet(
        library=options.backend,
        version=versions.pop(),
        targets=options.targets,
        precision=precision,
        dtype=dtype,
        attention=options.attention,
        weights=options.weights,
        graphs=options.graphs,
        decode=DECODE,
        prefill=PREFILL,
        slots=slots,
        segments=tuple(names[path] for path in graphs.segments),
        head=names[graphs.head],
        draft_head=names[graphs.draft_head] if graphs.draft_head else None,
        plugin=plugin,
    )
    return EngineReport(engines, built)


def build_one(graph: Path, engine: Path, options: BuildOptions, slots: int, tell: TellOne | None = None) -> Built:
    """Build the engine of one graph. Raises ForedraftError naming graph, node and cause."""
    timing = None
    if options.library.needs_gpu:  # a library that needs no device measures nothing
        timing = str(cache_folder() / "timings" / f"{options.backend}-{'-'.join(options.targets)}.cache")
    job = BuildJob(
        options.backend,
        str(graph.absolute()),
        str(engine.absolute()),
        options.targets,
        DECODE,
        PREFILL,
        slots,
        timing,
    )
    built = build_engine(job, tell)
    if not options.library.needs_gpu:
        check_header(engine.read_bytes(), options.targets, str(engine))
    return built


def _write_images(folder: Path, shape: AttentionShape, options: BuildOptions, dtype: str, tell: TellOne) -> None:
    from foredraft_plugins.tree_attention.gpu.compile import compile_images

    sms = tuple(int(target.removeprefix("sm")) for target in options.targets)

    def progress(done: int, total: int, what: str) -> None:
        tell(f"kernels {done}/{total}: {what}", 0.0)

    try:
        images = compile_images(shape, dtype, sms, progress)
    except PluginError as error:
        raise ForedraftError(f"the attention plugin's kernels: {error}") from error
    folder.mkdir()
    for name, data in images.files().items():
        (folder / name).write_bytes(data)


def _engine_name(graph: str) -> str:
    """``graphs/tensorrt-segment-0.onnx`` -> ``segment-0.engine``."""
    stem = Path(graph).stem
    return next(f"{stem[stem.index(kind) :]}.engine" for kind in ("segment-", "draft-head", "head") if kind in stem)


def told(tell: Tell | None, done: int, total: int) -> TellOne:
    """``tell`` for one engine, after ``done`` of ``total``."""
    return lambda what, seconds: tell(what, done, total, seconds) if tell else None


def _require_device(options: BuildOptions) -> None:
    """The device must be here and be what is built for, since the library compiles on it."""
    device = Device(load_driver())
    if options.targets != (device.target,):
        raise ForedraftError(
            f"--targets {','.join(options.targets)}: {options.backend} builds for the device that it runs on, "
            f"{device}; run it on the other device"
        )
