"""Builders of operators that move or select elements."""
