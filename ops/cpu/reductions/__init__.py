"""Reductions, and row-wise operators made of several."""
