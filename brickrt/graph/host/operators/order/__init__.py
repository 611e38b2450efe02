"""Operators that put elements in order, or look for the greatest."""
