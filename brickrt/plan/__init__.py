"""Partition, strategies, bricks and cost model."""
