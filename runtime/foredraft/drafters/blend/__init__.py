"""Drafter `blend`: one best-first tree from all levels, with calibrated probabilities."""
