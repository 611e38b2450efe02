"""Importing this module makes all CUDA kernels known to `make_kernel`."""

__all__: list[str] = []
