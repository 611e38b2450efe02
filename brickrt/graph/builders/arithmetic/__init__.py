"""Builders of elementwise operators, reductions and matrix products."""
