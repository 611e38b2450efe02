"""Operators that several others were joined to."""
