"""C++ text that all kernels share: expressions, types, traits, walks over boxes, epilogues."""
