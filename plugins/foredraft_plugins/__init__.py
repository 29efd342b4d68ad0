"""The operators that no library has: each folder holds one operator's meaning (numpy) and its kernels.

    library.py        where the built shared library is, and what it uses of this CPU
    onnxruntime/      how a C++ class becomes a custom operator of onnxruntime
    native/           sixteen lanes on every instruction set, the choice between them
    block_linear/     x W^T with weights in 4 or 8 bits, and rows of the same weights as embeddings
    dense_linear/     x W^T in fp32
    tree_attention/   RoPE, cache update in place and attention over a tree of slots
    rows/             RMSNorm, AddRMSNorm, SwiGLU

Imports numpy only.
"""
