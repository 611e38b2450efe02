"""The threads that run tasks, compiled, outside Python."""
