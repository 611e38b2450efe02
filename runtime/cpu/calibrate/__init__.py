"""Measures the speeds of the host for the cost model."""
