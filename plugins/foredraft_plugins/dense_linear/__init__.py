"""``foredraft::DenseLinear``: x W^T in fp32, each row bitwise the same whatever else is in the forward."""
