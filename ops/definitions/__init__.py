"""The NumPy definitions that kernels are compared with."""
