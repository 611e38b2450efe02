"""Quantized tensors computed as integers: what they stand for, and the operators that take them so."""
