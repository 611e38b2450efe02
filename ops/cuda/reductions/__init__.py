"""Kernels for reductions, row-wise operators and pooling."""
