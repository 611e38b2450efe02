"""The CPU engine: compiled kernels, argument tables, and worker threads that run tasks without Python."""
