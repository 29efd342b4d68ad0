"""Which weights a bundle holds and in which precision: planned, quantized, written."""
