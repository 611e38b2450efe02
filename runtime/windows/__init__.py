"""Runs a network on overlapping windows of an image, whose results are blended: not the exact result."""
