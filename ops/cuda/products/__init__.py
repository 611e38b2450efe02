"""Kernels for convolutions and matrix products, most of them as tiles of a thread block."""
