"""Checks of the tables that kernels read."""
