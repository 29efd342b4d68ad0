"""Checkpoint -> bundle. Reads models, plans and writes their weights; never imported by the runtime."""
