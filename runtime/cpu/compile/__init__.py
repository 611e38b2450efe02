"""Kernels and the engine's own functions, compiled by several processes, kept on disk and loaded."""
