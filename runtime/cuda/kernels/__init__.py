"""From kernels to compiled modules, by NVRTC."""
