"""From kernels to functions of this process, by several processes, kept on disk."""
