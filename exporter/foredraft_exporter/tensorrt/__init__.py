"""From a bundle's TensorRT graphs to engines. The library itself runs in processes of its own (worker.py)."""
