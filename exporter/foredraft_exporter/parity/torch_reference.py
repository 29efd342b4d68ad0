"""The model as transformers computes it: float32, eager attention, CPU. Knows nothing of bundles or engines.

Whatever a checkpoint's config means, this module leaves to transformers' own classes. It shares with the
exporter only the reader that brings the tensors.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from foredraft.errors import CheckpointError, ForedraftError, UnsupportedModelError
from foredraft_exporter.sources.checkpoint import Checkpoint, CheckpointInfo

Float32 = NDArray[np.float32]
Progress = Callable[[int, int, str], None]
"""``(done, total, what)``"""

_IGNORED = ("rotary_emb.inv_freq",)
"""Ends of tensor names that old checkpoints store and transformers computes."""


@dataclass(frozen=True, slots=True)
class TorchReference:
    """A causal language model, ready to run: ``model`` is transformers' own, in evaluation mode."""

    model: Any

    def readouts(self, tokens: Sequence[int], exits: Sequence[int]) -> list[Float32]:
        """The normed states after each of ``exits`` (numbers of layers), float32 [tokens, hidden_size] each.

        The last entry of ``hidden_states`` is normed already; the others are what the layers hand on.
        """
        import torch

        decoder = self.model.get_decoder()
        with torch.inference_mode():
            states = decoder(torch.tensor([list(tokens)]), output_hidden_states=True, use_cache=False).hidden_states
            last = len(states) - 1
            normed = [states[exit_] if exit_ == last else decoder.norm(states[exit_]) for exit_ in exits]
        return [state[0].numpy() for state in normed]

    def logits(self, readout: Float32) -> Float32:
        """The head over normed states, float32 [rows, hidden_size] -> [rows, vocab_size]."""
        import torch

        with torch.inference_mode():
            return np.asarray(self.model.get_output_embeddings()(torch.from_numpy(readout)).numpy())


def require_libraries() -> None:
    """Raises ``ForedraftError`` in one line if torch or transformers 5 is not installed."""
    missing = [name for name in ("torch", "transformers") if importlib.util.find_spec(name) is None]
    install = "pip install 'foredraft[reference]'"
    if missing:
        raise ForedraftError(f"the reference needs {' and '.join(missing)}; install it with: {install}")
    version = importlib.metadata.version("transformers")
    if int(version.partition(".")[0]) < 5:
        raise ForedraftError(
            f"the reference needs transformers 5 or later, found {version}; upgrade it with: {install}"
        )


def load_reference(
    checkpoint: Checkpoint, context: int, threads: int | None = None, progress: Progress | None = None
) -> TorchReference:
    """Build the model and copy every tensor into it; memory is the float32 weights and one tensor more.

    ``context`` is the longest text, which dynamic RoPE scaling is fixed for (see docs/check.md). ``threads``
    is set for the whole process. Raises ``CheckpointError`` for a tensor that is missing, of another shape,
    unused, or not finite, and ``ForedraftError`` if the libraries are missing or the weights do not fit in
    memory.
    """
    require_libraries()
    import torch
    import transformers

    auto: Any = transformers.AutoModelForCausalLM
    if threads is not None:
        torch.set_num_threads(threads)
    config = _config(checkpoint.info)
    _check_memory(checkpoint)
    with torch.device("meta"):
        model = auto.from_config(config, dtype=torch.float32, attn_implementation="eager", trust_remote_code=False)
    _fill(model, checkpoint, progress)
    _place_rotation(model, checkpoint.info.config, context)
    return TorchReference(model.eval())


def _config(info: CheckpointInfo) -> Any:
    """The checkpoint's config as transformers reads it."""
    from transformers import CONFIG_MAPPING

    values = {key: value for key, value in info.config.items() if key != "auto_map"}
    values["pad_token_id"] = None  # of no use here, and a default may lie outside the vocabulary
    if _rope(values).get("rope_type") == "factors":  # a GGUF file's own form, put in place below
        values["rope_parameters"] = {"rope_type": "default", "rope_theta": _rope(values)["rope_theta"]}
    try:
        return CONFIG_MAPPING[values["model_type"]].from_dict(values)
    except Exception as error:  # transformers raises whatever its validators raise
        reason = " ".join(str(error).split())
        raise UnsupportedModelError(f"{info.name}: transformers does not accept its config: {reason}") from error


def _rope(config: Mapping[str, Any]) -> dict[str, Any]:
    return config.get("rope_parameters") or {}


def _fill(model: Any, checkpoint: Checkpoint, progress: Progress | None) -> None:
    """Put the checkpoint's tensors in place of the model's empty ones."""
    import torch

    empty = dict(model.named_parameters())
    names = [name for name in checkpoint.names() if not name.endswith(_IGNORED)]
    for done, name in enumerate(names):
        if progress:
            progress(done, len(names), f"reading {name}")
        if name not in empty:
            raise CheckpointError(
                f"{checkpoint.info.name}: tensor {name!r} has no place in transformers' "
                f"{type(model).__name__}; it would be left out and change the output"
            )
        if checkpoint.shape(name) != tuple(empty[name].shape):
            raise CheckpointError(
                f"{checkpoint.info.name}: tensor {name!r} has shape {list(checkpoint.shape(name))}, "
                f"expected {list(empty[name].shape)} by the config; they are of different models"
            )
        values = checkpoint.read(name)
        if not np.isfinite(values).all():
            raise CheckpointError(
                f"{checkpoint.info.name}: tensor {name!r} has values that are NaN or infinite; "
                "the checkpoint is damaged, download it again"
            )
        owner, _, leaf = name.rpartition(".")
        tensor = torch.from_numpy(np.require(values, requirements=["C", "W"]))
        setattr(model.get_submodule(owner), leaf, torch.nn.Parameter(tensor, requires_grad=False))
        checkpoint.release()
    model.tie_weights()
    left = [name for name, parameter in model.named_parameters() if parameter.is_meta]
    if left:
        raise CheckpointError(f"{checkpoint.info.name}: the checkpoint has no tensor {left[0]!r}")


def _place_rotation(model: Any, config: Mapping[str, Any], context: int) -> None:
    """Compute the rotary frequencies, which are no checkpoint's tensors.

    Dynamic scaling follows the length of the text in transformers, so that an old token would have to be
    rotated anew; a bundle fixes it for its longest text, and so does this. The formula stays transformers'
    own.
    """
    import torch
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    decoder = model.get_decoder()
    rotary = type(decoder.rotary_emb)(model.config)
    if rotary.rope_type == "dynamic":
        rotary.inv_freq, rotary.attention_scaling = ROPE_INIT_FUNCTIONS["dynamic"](model.config, seq_len=context)
        rotary.rope_type = "default"
    if _rope(config).get("rope_type") == "factors":
        rotary.inv_freq = rotary.inv_freq / torch.tensor(_rope(config)["factors"], dtype=torch.float32)
    decoder.rotary_emb = rotary


def _check_memory(checkpoint: Checkpoint) -> None:
    """Say so before the system would end the process."""
    needed = 4 * sum(int(np.prod(checkpoint.shape(name), dtype=np.int64)) for name in checkpoint.names())
    available = _available_memory()
    if available is not None and needed > available:
        raise ForedraftError(
            f"{checkpoint.info.name}: the reference needs {needed / 1e9:.3f} GB of memory for float32 "
            f"weights, and {available / 1e9:.3f} GB are available; run the check on a larger machine"
        )


def _available_memory() -> int | None:
    """Bytes that can be taken without swapping, where the system says so (Linux)."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")), None)
