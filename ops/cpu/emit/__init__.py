"""The structured emitter of LLVM IR, and the arithmetic that all kernels share."""
