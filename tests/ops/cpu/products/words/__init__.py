"""Tests of products of quantized integers."""
