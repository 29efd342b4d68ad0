"""Prints the instruction set and a digest of every operator's bits on fixed inputs, to compare FOREDRAFT_ISAs."""

import hashlib

import numpy as np

from foredraft_plugins.library import instruction_set
from foredraft_plugins.sampling import calls

from .session import Operator
from .trees import Shape, attend, mask_of, random_tree
from .weights import activations, random_packed


def fingerprints() -> dict[str, str]:
    found: dict[str, str] = {}
    rng = np.random.default_rng(0)

    def note(name: str, array: np.ndarray) -> None:
        found[name] = hashlib.sha256(array.tobytes()).hexdigest()

    for bits in (4, 8):
        for has_min in (False, True):
            packed = random_packed(rng, 75, 192, bits, has_min)
            packed["codes"][0] = 255
            linear = Operator("BlockLinear", {"x": "FLOAT T K"}, constants=packed, bits=bits, N=75, K=192)
            note(f"BlockLinear {bits} {has_min}", linear(x=activations(rng, 13, 192)))
            embedding = Operator("BlockEmbedding", {"tokens": "INT32 T"}, constants=packed, bits=bits, N=75, K=192)
            note(f"BlockEmbedding {bits} {has_min}", embedding(tokens=np.arange(75, dtype=np.int32)))
    logits = (5 * rng.standard_normal(5000)).astype(np.float32)
    for temperature in (0.3, 1.0):
        race = calls.contenders(logits, None, int(logits.argmax()), temperature, 7, 3)
        assert race is not None
        note(f"contenders {temperature}", np.concatenate(race))
    note("total", np.array([calls.total(logits, float(logits.max())), calls.least_outside(7, 5000, np.arange(9))]))
    dense = Operator("DenseLinear", {"x": "FLOAT T K", "w": "FLOAT N K"})
    note("DenseLinear", dense(x=activations(rng, 7, 75), w=activations(rng, 21, 75)))
    norm = Operator("RMSNorm", {"x": "FLOAT T D", "weight": "FLOAT D"}, epsilon=1e-5)
    note("RMSNorm", norm(x=activations(rng, 7, 75), weight=activations(rng, 75)))
    note("SwiGLU", Operator("SwiGLU", {"gate_up": "FLOAT T D"})(gate_up=activations(rng, 7, 150)))
    for shape in (Shape(9, 3, 64, 64), Shape(5, 1, 80, 20), Shape(7, 1, 96, 0)):
        tree = random_tree(rng, 150, 11, 40)
        qkv = activations(rng, 11, shape.qkv_width) * np.float32(0.3)
        key, value = shape.cache(rng, 240)
        mask = mask_of(tree.visible(), 150)
        note(f"TreeAttention {shape}", attend(shape, qkv, key, value, tree.slots, tree.positions(), 150, mask))
        note(f"cache {shape}", key)
    return found


if __name__ == "__main__":
    print(instruction_set())
    for name, digest in fingerprints().items():
        print(name, digest)
