"""Kernels of the CUDA engine: C++ printed per node and shape, around headers that a host compiler takes too."""
