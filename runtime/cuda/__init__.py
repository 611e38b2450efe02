"""The CUDA engine: plans as launches on a stream, in one CUDA graph, and in a persistent kernel."""
