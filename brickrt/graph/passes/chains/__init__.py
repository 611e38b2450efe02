"""Operators that are joined to chains for GPUs."""
