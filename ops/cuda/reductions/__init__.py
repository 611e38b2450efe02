"""Reductions, row-wise operators and pooling."""
