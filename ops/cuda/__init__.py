"""CUDA kernels: C++ printed per node and shape on top of headers/, which a host compiler takes too (for tests)."""
