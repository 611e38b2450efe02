"""Rewrites of a specialized graph, one per file."""
