"""Elementwise chains and interpolation."""
