"""Operators: what each one is (shapes, regions, NumPy definition) and, per device, its kernels."""
