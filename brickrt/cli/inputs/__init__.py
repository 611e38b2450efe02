"""From a command's options and files to input arrays."""
