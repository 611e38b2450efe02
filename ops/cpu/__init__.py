"""CPU kernels as LLVM IR."""
