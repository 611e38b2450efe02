"""Passes: rewrites of a specialized graph, one per file."""
