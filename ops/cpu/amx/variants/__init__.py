"""Kernels of tile registers that read or make their operands in ways of their own."""
