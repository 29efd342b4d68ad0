"""The GPU kernels are compiled here, without a GPU: for which devices, at what cost, and what their files hold."""

import functools
import json

import pytest

from foredraft_plugins.tree_attention.gpu.compile import SMS, compile_images
from foredraft_plugins.tree_attention.gpu.images import HEAD_DIMS, INDEX, AttentionShape, Image, Images, PluginError
from foredraft_plugins.tree_attention.gpu.interface import INTERFACE, SIGNATURES

pytestmark = pytest.mark.slow

SMOLLM2 = AttentionShape(9, 3, 64, 64)
SHARED_PER_BLOCK = {75: 64, 80: 163, 86: 99, 87: 163, 89: 99, 90: 227, 100: 227, 103: 227, 110: 227, 120: 99, 121: 99}
"""KiB, from the CUDA programming guide's table of compute capabilities."""


@functools.cache
def images(dtype: str = "fp16", sms: tuple[int, ...] = (80, 120)) -> Images:
    return compile_images(SMOLLM2, dtype, sms)


@pytest.mark.parametrize(("dtype", "sms"), [("fp16", (80, 120)), ("bf16", (89, 90)), ("fp16", (75,))])
def test_kernels_compile_without_spills(dtype, sms):
    compiled = images(dtype, sms)
    assert compiled.sms == sms
    for image in compiled.images:
        assert image.spills == 0, image.file
        assert image.shared <= 1024 * SHARED_PER_BLOCK[image.sm], image.file
        assert image.registers * image.warps * 32 <= 65536, image.file
        assert image.data.startswith(b"\x7fELF")


@pytest.mark.parametrize("head_dim", sorted({*HEAD_DIMS} - {64}))
def test_every_head_dim_compiles_without_spills(head_dim):
    compiled = compile_images(AttentionShape(4, 2, head_dim, head_dim // 2), "fp16", [86])
    assert [image.kernel for image in compiled.images] == list(SIGNATURES)
    assert not any(image.spills for image in compiled.images)


def test_progress_counts_kernels(monkeypatch):
    monkeypatch.setattr(
        "foredraft_plugins.tree_attention.gpu.compile.compile_kernel", lambda name, recipe, dtype, sm: nothing(name, sm)
    )
    told: list[tuple[int, int, str]] = []
    compile_images(SMOLLM2, "fp16", [90, 80, 90], lambda *event: told.append(event))
    assert told[0] == (1, 10, "append for sm80")
    assert told[-1] == (10, 10, "copy-rows for sm90")


def test_compiling_again_gives_the_same_bytes_and_no_paths():
    again = compile_images(SMOLLM2, "fp16", [80])
    assert again.images == tuple(image for image in images().images if image.sm == 80)
    assert not any(b"kernel.py" in image.data for image in again.images)


@pytest.mark.parametrize(
    ("dtype", "sms", "message"),
    [
        ("bf16", [75], "sm75 has no bfloat16 arithmetic: use fp16 for it, or leave sm75 out"),
        ("fp16", [70], r"sm70 is not supported, expected one of sm75, .*sm121"),
        ("fp32", [80], "dtype is 'fp32', expected one of fp16, bf16"),
    ],
)
def test_what_cannot_be_compiled_is_named(dtype, sms, message):
    with pytest.raises(PluginError, match=message):
        compile_images(SMOLLM2, dtype, sms)


def test_a_kernel_with_other_parameters_is_refused(monkeypatch):
    monkeypatch.setattr("foredraft_plugins.tree_attention.gpu.compile.HIDDEN_PARAMETERS", 3)
    with pytest.raises(PluginError, match=r"gave append 12 parameters, expected 10 and 3 hidden ones"):
        compile_images(SMOLLM2, "fp16", [80])


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ((4, 3, 64, 64), "num_heads is 4 and kv_num_heads is 3"),
        ((4, 2, 48, 48), "head_dim is 48, expected one of 32, 64, 80, 96, 128"),
        ((4, 2, 64, 65), "rotary_dim is 65, expected an even number up to head_dim, 64"),
        ((4, 2, 64, 66), "rotary_dim is 66"),
    ],
)
def test_impossible_shapes_are_refused(shape, message):
    with pytest.raises(PluginError, match=message):
        AttentionShape(*shape)


@pytest.mark.parametrize("sm", SMS)
def test_the_same_capability_fits(sm):
    assert described(sm).of_device(sm).keys() == SIGNATURES.keys()


@pytest.mark.parametrize(
    ("compiled", "device", "fits"),
    [
        ((80,), 86, True),
        ((80,), 89, True),
        ((86,), 89, True),
        ((86,), 80, False),
        ((89,), 86, False),
        ((80,), 90, False),
        ((86,), 87, False),
        ((87,), 89, False),
        ((90,), 100, False),
        ((100,), 103, False),
        ((120,), 121, False),
    ],
)
def test_another_capability_fits_where_cuda_says_so(compiled, device, fits):
    chosen = described(*compiled)
    if fits:
        assert all(image.sm in compiled for image in chosen.of_device(device).values())
    else:
        with pytest.raises(PluginError, match=rf"no TreeAttention kernel for this device, sm{device}.*sm{compiled[0]}"):
            chosen.of_device(device)


def test_the_nearest_capability_is_taken():
    chosen = described(80, 86, 120).of_device(89)
    assert {image.sm for image in chosen.values()} == {86}


def test_files_are_read_as_they_were_written():
    files = images().files()
    assert set(files) == {INDEX, *(f"sm{sm}-{kernel}.cubin" for sm in (80, 120) for kernel in SIGNATURES)}
    assert Images.read(files.__getitem__) == images()


def damaged(**changes: object) -> dict[str, bytes]:
    files = images().files()
    return {**files, INDEX: json.dumps({**json.loads(files[INDEX]), **changes}).encode()}


def image_damaged(**changes: object) -> dict[str, bytes]:
    entries = json.loads(images().files()[INDEX])["images"]
    return damaged(images=[{**entries[0], **changes}, *entries[1:]])


@pytest.mark.parametrize(
    ("files", "message"),
    [
        (lambda: {INDEX: b"{"}, "images.json is damaged"),
        (lambda: {INDEX: b"\xff\xfe\x00"}, "images.json is damaged"),
        (lambda: {INDEX: b"[]"}, "not a list of kernel images"),
        (lambda: damaged(format=2), "not a list of kernel images of format 1"),
        (lambda: damaged(interface="x"), f"interface 'x', but this version of foredraft launches '{INTERFACE}'"),
        (lambda: damaged(dtype="fp32"), "dtype is 'fp32'"),
        (lambda: damaged(shape={"num_heads": 9}), "kv_num_heads is None, expected int"),
        (lambda: damaged(shape={**vars_of(SMOLLM2), "head_dim": 65}), "head_dim is 65"),
        (lambda: damaged(images=[5]), "is None, expected str"),
        (lambda: image_damaged(kernel="../../secret"), "kernel is '../../secret', expected one of append"),
        (lambda: image_damaged(sm=True), "sm is True, expected int"),
        (lambda: image_damaged(warps=33), "sm80-append.cubin wants 33 warps"),
        (lambda: image_damaged(shared=-1), "and -1 bytes of shared memory"),
        (lambda: {**images().files(), "sm80-append.cubin": b"\x7fELF"}, "sm80-append.cubin is damaged"),
    ],
)
def test_damaged_files_are_refused(files, message):
    with pytest.raises(PluginError, match=message):
        Images.read(files().__getitem__)


def vars_of(shape: AttentionShape) -> dict[str, int]:
    return {name: getattr(shape, name) for name in AttentionShape.__slots__}


def described(*sms: int) -> Images:
    """Images of nothing, for as many devices."""
    return Images(SMOLLM2, "fp16", tuple(nothing(kernel, sm) for sm in sms for kernel in SIGNATURES))


def nothing(kernel: str, sm: int) -> Image:
    return Image(kernel, sm, kernel, shared=0, warps=4, registers=32, spills=0, data=b"")
