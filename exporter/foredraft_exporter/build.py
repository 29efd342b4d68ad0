"""From a checkpoint to a bundle: plan, weights, graphs, tokenizer, manifest. Knows nothing of the command line."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import onnx_ir as ir

import foredraft
from foredraft.bundle.manifest import (
    FILE_NAME,
    SCHEMA,
    EngineSet,
    FileInfo,
    GraphFiles,
    Manifest,
    ModelInfo,
    SegmentInfo,
)
from foredraft.disk_space import check_space
from foredraft.errors import ForedraftError
from foredraft.staging import refuse_sources, staged_folder
from foredraft_exporter.exits.additions import ExitOptions, add_exits
from foredraft_exporter.models import architecture_of
from foredraft_exporter.models import decoder as decoder_of
from foredraft_exporter.sources.checkpoint import Checkpoint, open_checkpoint
from foredraft_exporter.tensorrt.build_options import BuildOptions, slots_for
from foredraft_exporter.tensorrt.engine_set import Tell, build_engines, require_builder
from foredraft_exporter.tensorrt.plan import builder_memory, engine_lowerings, engines_size
from foredraft_exporter.text_files import TextFiles, read_text_files
from foredraft_exporter.weights.precision import ROWS, TILES
from foredraft_exporter.weights.size_check import check_sizes
from foredraft_exporter.weights.storage import Floats
from foredraft_exporter.weights.weight_plan import WeightPlan, plan
from foredraft_exporter.weights.writing import PEAK_MEMORY, Progress, WeightReport, read_layout, write_weights
from foredraft_graphs.decoder import Decoder
from foredraft_graphs.head import DRAFT_IDS, draft_head_graph, head_graph
from foredraft_graphs.kernel_lowering import KernelLowering
from foredraft_graphs.lowering import Lowering
from foredraft_graphs.portable_lowering import PortableLowering
from foredraft_graphs.segment import segment_graph
from foredraft_graphs.weights_file import WeightsFile

CPU_LOWERINGS: tuple[Lowering, ...] = (KernelLowering(), PortableLowering())
_GRAPHS_SIZE = 8 << 20
"""Room for graphs, tokenizer and manifest in the estimate, in bytes."""


@dataclass(frozen=True, slots=True)
class ExportPlan:
    """What an export will do, known before it starts. Sizes in bytes; ``memory`` is the peak beyond the libraries'."""

    checkpoint: Checkpoint
    decoder: Decoder
    exits: tuple[int, ...]
    weights: WeightPlan
    layout: str
    lowerings: tuple[Lowering, ...]
    precision: str
    text: TextFiles
    disk: int
    memory: int
    engines: BuildOptions | None = None


def prepare(
    source: str | Path,
    *,
    exits: Sequence[int] = (),
    precision: str = "auto",
    context: int | None = None,
    exit_options: ExitOptions | None = None,
    engines: BuildOptions | None = None,
) -> ExportPlan:
    """Open the source, check and decide everything; reads headers, a few rows and the exits' adapters only.

    Without ``engines`` the bundle is for ONNX Runtime's CPU engine. Raises CheckpointError or UnsupportedModelError
    for a source that cannot be exported exactly, ForedraftError for exits that do not cut the model or options that do
    not fit them.
    """
    checkpoint = open_checkpoint(source)
    decoder = decoder_of(checkpoint.info.config, context)
    check_sizes(checkpoint, decoder)
    check_exits(exits, decoder.layers)
    text = read_text_files(checkpoint, decoder.vocab_size)
    checkpoint, extras = add_exits(checkpoint, decoder, exits, exit_options or ExitOptions())
    layout = ROWS if engines else TILES
    weights = plan(checkpoint, decoder, precision, extras, layout)
    label = _label(weights)
    count = len(exits) + 2  # the segments and the head
    size = engines_size(engines, weights.nbytes, decoder.layers, count) if engines else 0
    lowerings = engine_lowerings(decoder, engines, label) if engines else CPU_LOWERINGS
    return ExportPlan(
        checkpoint,
        decoder,
        tuple(exits),
        weights,
        layout.name,
        tuple(lowering for lowering in lowerings if lowering.supports(decoder)),
        label,
        text,
        disk=weights.nbytes + _GRAPHS_SIZE + size,
        memory=builder_memory(engines, weights.nbytes) if engines else PEAK_MEMORY,
        engines=engines,
    )


def check_exits(exits: Sequence[int], layers: int) -> None:
    """Exits are layer counts, ascending, inside the model."""
    for before, exit_ in zip([0, *exits], exits, strict=False):
        if not 1 <= exit_ < layers:
            raise ForedraftError(f"exit {exit_}: this model has {layers} layers, an exit lies at 1 to {layers - 1}")
        if exit_ <= before:
            raise ForedraftError(f"exits {list(exits)}: each must be larger than the one before it")


def export(
    source: str | Path,
    out: str | Path,
    *,
    exits: Sequence[int] = (),
    precision: str = "auto",
    context: int | None = None,
    exit_options: ExitOptions | None = None,
    engines: BuildOptions | None = None,
    replace: bool = False,
    progress: Progress | None = None,
    building: Tell | None = None,
    planned: Callable[[ExportPlan], None] | None = None,
) -> tuple[Manifest, WeightReport]:
    """Write the bundle ``out``; it appears complete or not at all.

    ``planned`` is told the plan before any weight is read; ``progress`` is called with (bytes done, bytes in all,
    tensor), ``building`` as ``build_engines`` calls it. Raises as ``prepare`` does, and ForedraftError if ``out``
    is, holds or lies in the source, exists (unless ``replace``), is being written by someone else, or does not fit on
    the disk, or if an engine cannot be built.
    """
    refuse_sources(Path(out), [Path(source)])
    if engines:
        require_builder(engines)
    chosen = prepare(
        source, exits=exits, precision=precision, context=context, exit_options=exit_options, engines=engines
    )
    target = Path(out)
    check_space("the export", (target, chosen.disk))
    if planned:
        planned(chosen)
    with staged_folder(target, replace, marker=FILE_NAME) as folder:
        weights = f"graphs/weights/{chosen.precision}.safetensors"
        (folder / weights).parent.mkdir(parents=True)
        report = write_weights(folder / weights, chosen.checkpoint, chosen.decoder, chosen.weights, progress)
        graphs = _write_graphs(folder, chosen, weights)
        _write_text_files(folder, chosen)
        built = _build_engines(folder, chosen, graphs, building) if engines else {}
        manifest = _manifest(folder, chosen, weights, graphs, built)
        (folder / FILE_NAME).write_bytes(manifest.to_bytes())
    return manifest, report


def _label(weights: WeightPlan) -> str:
    """A precision's name: that of the body's narrowest matrix, 4-bit bodies keeping their head wider."""
    narrowest = min((matrix.storage for matrix in weights.matrices), key=lambda storage: storage.bits)
    return narrowest.kind if isinstance(narrowest, Floats) else f"int{narrowest.bits}"


def _segments(exits: Sequence[int], layers: int) -> list[tuple[int, int]]:
    return list(zip([0, *exits], [*exits, layers], strict=True))


def _write_graphs(folder: Path, chosen: ExportPlan, weights: str) -> dict[str, GraphFiles]:
    location = Path(weights).relative_to("graphs").as_posix()
    file = WeightsFile(location, read_layout(folder / weights), chosen.weights.bits, chosen.layout)
    written = {}
    for lowering in chosen.lowerings:
        paths = []
        for index, (first, last) in enumerate(_segments(chosen.exits, chosen.decoder.layers)):
            graph = segment_graph(chosen.decoder, first, last, file, lowering, f"segment-{index}")
            paths.append(f"graphs/{lowering.name}-segment-{index}.onnx")
            ir.save(graph, folder / paths[-1])
        head = f"graphs/{lowering.name}-head.onnx"
        ir.save(head_graph(chosen.decoder, file, lowering), folder / head)
        draft_head = f"graphs/{lowering.name}-draft-head.onnx" if DRAFT_IDS in file.tensors else None
        if draft_head:
            ir.save(draft_head_graph(chosen.decoder, file, lowering), folder / draft_head)
        written[lowering.name] = GraphFiles(tuple(paths), head, draft_head)
    return written


def _build_engines(
    folder: Path, chosen: ExportPlan, graphs: dict[str, GraphFiles], tell: Tell | None
) -> dict[str, EngineSet]:
    assert chosen.engines is not None
    d, options = chosen.decoder, chosen.engines
    report = build_engines(
        folder,
        folder,
        graphs[options.graphs],
        options,
        shape=(d.heads, d.kv_heads, d.head_dim, d.rotary_dim),
        precision=chosen.precision,
        slots=slots_for(d.context),
        tell=tell,
    )
    return {options.name: report.engines}


def _write_text_files(folder: Path, chosen: ExportPlan) -> None:
    (folder / "tokenizer.json").write_bytes(chosen.text.tokenizer_json)
    if chosen.text.chat_template:
        (folder / "chat_template.jinja").write_text(chosen.text.chat_template, encoding="utf-8")
    for path in chosen.checkpoint.info.license.get("files", ()):
        (folder / "licenses").mkdir(exist_ok=True)
        shutil.copyfile(path, folder / "licenses" / Path(path).name)


def _manifest(
    folder: Path,
    chosen: ExportPlan,
    weights: str,
    graphs: dict[str, GraphFiles],
    engines: dict[str, EngineSet],
) -> Manifest:
    info, d = chosen.checkpoint.info, chosen.decoder
    return Manifest(
        schema=f"{SCHEMA[0]}.{SCHEMA[1]}",
        foredraft=foredraft.__version__,
        model=ModelInfo(
            name=info.name,
            architecture=architecture_of(info.config).model_type,
            license=info.license.get("id"),
            layers=d.layers,
            hidden_size=d.hidden_size,
            intermediate_size=d.intermediate_size,
            heads=d.heads,
            kv_heads=d.kv_heads,
            head_dim=d.head_dim,
            vocab_size=d.vocab_size,
            context=d.context,
        ),
        precision=chosen.precision,
        exits=chosen.exits,
        segments=tuple(SegmentInfo(first, last) for first, last in _segments(chosen.exits, d.layers)),
        tokenizer=chosen.text.tokenizer,
        weights=weights,
        graphs=graphs,
        engines=engines,
        files=_files(folder),
    )


def _files(folder: Path) -> dict[str, FileInfo]:
    files = {}
    for path in sorted(p for p in folder.rglob("*") if p.is_file()):
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        files[path.relative_to(folder).as_posix()] = FileInfo(path.stat().st_size, digest)
    return files
