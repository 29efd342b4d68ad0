"""The compiled kernels of one attention shape: which of them fits a device, and how they are kept as files."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from foredraft_plugins.tree_attention.gpu.interface import DTYPES, INTERFACE, SIGNATURES

__all__ = ["HEAD_DIMS", "INDEX", "AttentionShape", "Image", "Images", "PluginError"]

HEAD_DIMS = (32, 64, 80, 96, 128)
"""Head dimensions whose kernels were compiled for every compute capability and found free of spills."""

INDEX = "images.json"
"""The file that lists the others."""

FORMAT = 1

_TEGRA = (72, 87)
"""Compute capabilities of Jetson, whose code and the desktop's do not run on each other."""


class PluginError(ValueError):
    """The plugin cannot do what is asked of it; the message says what it got, and what it takes."""


@dataclass(frozen=True, slots=True)
class AttentionShape:
    """What the kernels are compiled for. `rotary_dim` 0: queries and keys come rotated.

    Raises PluginError for a shape that the kernels do not take.
    """

    num_heads: int
    kv_num_heads: int
    head_dim: int
    rotary_dim: int

    def __post_init__(self) -> None:
        if self.head_dim not in HEAD_DIMS:
            raise PluginError(f"head_dim is {self.head_dim}, expected one of {', '.join(map(str, HEAD_DIMS))}")
        if self.kv_num_heads < 1 or self.num_heads < 1 or self.num_heads % self.kv_num_heads:
            raise PluginError(
                f"num_heads is {self.num_heads} and kv_num_heads is {self.kv_num_heads}, expected a multiple"
            )
        if not 0 <= self.rotary_dim <= self.head_dim or self.rotary_dim % 2:
            raise PluginError(
                f"rotary_dim is {self.rotary_dim}, expected an even number up to head_dim, {self.head_dim}"
            )

    def __str__(self) -> str:
        rotary = f"{self.rotary_dim} of it rotary" if self.rotary_dim else "no rotary embedding"
        return f"{self.num_heads} heads over {self.kv_num_heads} KV heads, head_dim {self.head_dim}, {rotary}"

    @property
    def group(self) -> int:
        """Query heads per KV head."""
        return self.num_heads // self.kv_num_heads

    @property
    def qkv_width(self) -> int:
        """Columns of the joined projections."""
        return (self.num_heads + 2 * self.kv_num_heads) * self.head_dim

    @property
    def width(self) -> int:
        """Columns of the output."""
        return self.num_heads * self.head_dim


@dataclass(frozen=True, slots=True)
class Image:
    """One kernel compiled for one compute capability (`sm`, 89 for 8.9).

    `entry` is the function's name in `data` (a cubin), `shared` its shared memory in bytes, `warps` its block's size in
    32 threads, `registers` of a thread, `spills` the bytes of local memory of a thread.
    """

    kernel: str
    sm: int
    entry: str
    shared: int
    warps: int
    registers: int
    spills: int
    data: bytes

    @property
    def file(self) -> str:
        """The name of the file that holds `data`."""
        return f"sm{self.sm}-{self.kernel}.cubin"

    def fits(self, sm: int) -> bool:
        """Whether a device of compute capability `sm` runs this image.

        CUDA promises it within a major version for devices with a minor version as high or higher, not across Jetson
        and the desktop, and not from 9.0 on, where Triton compiles for one device's own instructions (sm_90a).
        """
        if sm == self.sm:
            return True
        return sm < 90 and sm // 10 == self.sm // 10 and sm > self.sm and not {sm, self.sm} & set(_TEGRA)


@dataclass(frozen=True, slots=True)
class Images:
    """All kernels of an attention shape in one dtype (fp16 or bf16), each for one or more compute capabilities."""

    shape: AttentionShape
    dtype: str
    images: tuple[Image, ...]

    @property
    def sms(self) -> tuple[int, ...]:
        """Compute capabilities compiled for, ascending."""
        return tuple(sorted({image.sm for image in self.images}))

    def of_device(self, sm: int) -> dict[str, Image]:
        """Kernel -> the best image for a device of compute capability `sm`. Raises PluginError if there is none."""
        fitting = [image for image in self.images if image.fits(sm)]
        best = {image.kernel: image for image in sorted(fitting, key=lambda image: image.sm)}
        if missing := sorted(set(SIGNATURES) - set(best)):
            raise PluginError(
                f"no TreeAttention kernel for this device, sm{sm} (missing: {', '.join(missing)}): the bundle holds "
                f"kernels for {', '.join(f'sm{have}' for have in self.sms) or 'none'}; build it for sm{sm} too"
            )
        return best

    def files(self) -> dict[str, bytes]:
        """File name -> content: a cubin per image, and `INDEX`. The same images give the same bytes."""
        index = {
            "format": FORMAT,
            "interface": INTERFACE,
            "shape": asdict(self.shape),
            "dtype": self.dtype,
            "images": [_entry(image) for image in self.images],
        }
        text = json.dumps(index, indent=1) + "\n"
        return {INDEX: text.encode(), **{image.file: image.data for image in self.images}}

    @classmethod
    def read(cls, read: Callable[[str], bytes]) -> Images:
        """The inverse of `files`; `read` gives the content of a file by name, and its errors pass through.

        Raises:
            PluginError: the files are damaged, or were made for launches other than this version's.
        """
        index = _parse(read(INDEX))
        images = tuple(_image(entry, read) for entry in _take(index, "images", list))
        dtype = _take(index, "dtype", str)
        if dtype not in DTYPES:
            raise PluginError(f"{INDEX}: dtype is {dtype!r}, expected one of {', '.join(DTYPES)}")
        shape = _take(index, "shape", dict)
        return cls(
            AttentionShape(**{field.name: _take(shape, field.name, int) for field in fields(AttentionShape)}),
            dtype,
            images,
        )


def _entry(image: Image) -> dict[str, Any]:
    known = {field.name: getattr(image, field.name) for field in fields(Image) if field.name != "data"}
    return {**known, "sha256": hashlib.sha256(image.data).hexdigest()}


def _parse(content: bytes) -> dict[str, Any]:
    try:
        index = json.loads(content)
    except ValueError as error:
        raise PluginError(f"{INDEX} is damaged: {error}") from error
    if not isinstance(index, dict) or index.get("format") != FORMAT:
        raise PluginError(f"{INDEX} is not a list of kernel images of format {FORMAT}")
    if index.get("interface") != INTERFACE:
        raise PluginError(
            f"{INDEX} lists kernels of interface {index.get('interface')!r}, but this version of foredraft launches "
            f"{INTERFACE!r}: build the engines again"
        )
    return index


def _take(entry: Any, name: str, kind: type) -> Any:
    value = entry.get(name) if isinstance(entry, dict) else None
    if not isinstance(value, kind) or isinstance(value, bool):
        raise PluginError(f"{INDEX}: {name} is {value!r}, expected {kind.__name__}")
    return value


def _image(entry: Any, read: Callable[[str], bytes]) -> Image:
    kinds = {"kernel": str, "entry": str, "sm": int, "shared": int, "warps": int, "registers": int, "spills": int}
    image = Image(**{name: _take(entry, name, kind) for name, kind in kinds.items()}, data=b"")
    if image.kernel not in SIGNATURES:
        raise PluginError(f"{INDEX}: kernel is {image.kernel!r}, expected one of {', '.join(SIGNATURES)}")
    if not (1 <= image.warps <= 32 and 0 <= image.shared <= 2**18):
        raise PluginError(f"{INDEX}: {image.file} wants {image.warps} warps and {image.shared} bytes of shared memory")
    data = read(image.file)
    if hashlib.sha256(data).hexdigest() != _take(entry, "sha256", str):
        raise PluginError(f"{image.file} is damaged: it is not the file that {INDEX} lists")
    return replace(image, data=data)
