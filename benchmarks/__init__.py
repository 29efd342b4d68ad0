"""Measurements. Absolute times drift with the machine; ratios within one run are what counts."""
