"""Convolutions and matrix products by register tiles."""
