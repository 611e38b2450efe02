"""Winograd convolutions of quantized integers, exact, for processors that have no instruction to multiply bytes."""
