"""Tests of `brickrt/graph/passes/chains`."""
