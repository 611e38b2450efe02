"""Compiled kernels and plans on disk."""
