"""Launches: which there are, their order, and the tables that kernels read."""
