"""Convolutions and matrix products as tiles of a thread block."""
