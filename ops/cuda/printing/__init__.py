"""C++ text that all kernels share: expressions, types, walks over boxes, epilogues."""
