"""CUDA kernels of operators that several others were joined to."""
