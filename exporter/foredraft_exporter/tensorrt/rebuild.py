"""Engines for a bundle that is there already: on the device that they are for, or for one more target."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

from foredraft.bundle import Bundle
from foredraft.bundle.tensor_file import parse_header
from foredraft.disk_space import check_space, naming_full_disk
from foredraft.distribution.add import add_engines
from foredraft.errors import ForedraftError
from foredraft_exporter.tensorrt.build_options import BuildOptions, slots_for
from foredraft_exporter.tensorrt.engine_set import EngineReport, Tell, build_engines, require_builder
from foredraft_exporter.tensorrt.plan import engines_size


def rebuild(bundle: Bundle, options: BuildOptions, tell: Tell | None = None) -> EngineReport:
    """Build engines from the bundle's graphs and add them to it; a set of the same name is replaced.

    The bundle loses its signature. Raises ForedraftError before anything is built if it has no such graphs, or the
    library, its parser, a device or room on the disk is missing; the bundle stays as it is if a build fails.
    """
    manifest = bundle.manifest
    if options.graphs not in manifest.graphs:
        raise ForedraftError(
            f"{bundle.path}: has no graphs {options.graphs!r}, only {', '.join(manifest.graphs) or 'none'}; "
            f"export it again: {export_command(manifest.model.name, options)}"
        )
    require_builder(options)
    graphs = manifest.graphs[options.graphs]
    for path in graphs.paths:
        bundle.read(path)  # checked: the library is given the path
    size = engines_size(options, manifest.files[manifest.weights].size, manifest.model.layers, len(graphs.paths))
    check_space("building the engines", (bundle.path, 2 * size))  # and a copy as they are added
    with (
        naming_full_disk(bundle.path),
        TemporaryDirectory(dir=bundle.path.absolute().parent, prefix=f".{bundle.path.name}.engines-") as folder,
    ):
        report = build_engines(
            bundle.path,
            Path(folder),
            graphs,
            options,
            shape=attention_shape(bundle),
            precision=manifest.precision,
            slots=slots_for(manifest.model.context),
            tell=tell,
        )
        add_engines(bundle, Path(folder), options.name, report.engines)
    return report


def attention_shape(bundle: Bundle) -> tuple[int, int, int, int]:
    """Heads, heads for K and V, head_dim and rotary_dim of the bundle's model."""
    model, path = bundle.manifest.model, bundle.manifest.weights
    tables = parse_header(bundle.map(path), str(bundle.path / path))["rope.cos"]
    return model.heads, model.kv_heads, model.head_dim, 2 * tables.shape[1]


def export_command(source: str, options: BuildOptions) -> str:
    """The command that makes a bundle with the graphs that these options need."""
    own = "" if options.attention == "plugin" else f" --attention {options.attention}"
    own += "" if options.weights == "inputs" else f" --weights {options.weights}"
    return f"foredraft export {source} --backend {options.backend} --targets {','.join(options.targets)}{own}"
