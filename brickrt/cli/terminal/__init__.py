"""Text for people, progress, and signals."""
