"""Tests of `ops/operators/chains`."""
