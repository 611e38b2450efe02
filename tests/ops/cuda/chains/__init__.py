"""Tests of `ops/cuda/chains`."""
