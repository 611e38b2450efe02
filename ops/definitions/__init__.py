"""NumPy arithmetic of operators and expressions, which kernels of all devices are compared with."""
