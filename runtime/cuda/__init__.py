"""The CUDA engine: plans as launches on streams, in one CUDA graph, and in a persistent kernel."""
