"""The state words of tasks, and a checker of protocols over all interleavings."""
