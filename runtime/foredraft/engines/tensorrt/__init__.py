"""Segments and head as TensorRT engines on a CUDA device; its libraries are only imported when one is opened."""
