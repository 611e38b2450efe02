"""Kernels that copy elements: transposes, reshapes, concatenations, and look-ups by tables."""
