"""Builders of operators with windows over space: convolution, pooling, padding, resizing."""
