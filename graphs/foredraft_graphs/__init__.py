"""The ONNX of a segment and of the head, and its lowering to a backend. Knows nothing of checkpoints or of running."""
