"""Kernels for elementwise chains (Map) and interpolation (Interp)."""
