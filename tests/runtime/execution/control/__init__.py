"""Bodies of loops and branches, as programs."""
