"""Mathematical functions on registers: of vectors in LLVM IR, and the C library's, lane by lane."""
