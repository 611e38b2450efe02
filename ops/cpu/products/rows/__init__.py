"""Rows of pixels, or of a matrix, in register tiles whose number is not known."""
