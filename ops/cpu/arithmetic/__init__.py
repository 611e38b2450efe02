"""Scalar expressions and functions on register values: vectors or scalars of LLVM."""
