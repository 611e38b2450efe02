"""Where ONNX's Slice differs from a slice of NumPy."""

from __future__ import annotations


def slice_start(start: int, extent: int, step: int) -> int:
    """Where a slice begins: ONNX moves one that goes backwards from before the first position there, NumPy does not."""
    return max(start, -extent) if step < 0 else start
