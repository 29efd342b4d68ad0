"""What every engine on a CUDA device shares: memory, rows, steps, heads. No TensorRT here."""
