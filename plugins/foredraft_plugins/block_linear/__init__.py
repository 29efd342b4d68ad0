"""``foredraft::BlockLinear`` and ``foredraft::BlockEmbedding``: weights in 4 or 8 bits with a scale per block of 32.

`packing` owns the layout of the weights, `reference` says what the operators compute.
"""
