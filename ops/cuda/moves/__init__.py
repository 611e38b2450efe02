"""Operators that move elements."""
