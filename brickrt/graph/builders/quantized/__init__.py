"""Builders of quantized operators."""
