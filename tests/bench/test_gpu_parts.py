"""What each part of a plan takes, asked of a device that does nothing: every part has a row, with what computes it."""

from __future__ import annotations

import pytest

from bench.gpu.asks.parts import COLUMNS, VARIANTS, measure


@pytest.mark.parametrize("variant", VARIANTS)
def test_parts_are_told(variant) -> None:
    found = measure("nafnet", 32, "fp16", variant, "null")
    rows = [dict(zip(COLUMNS, row, strict=True)) for row in found["parts"]]
    assert found["parts_us"] == found["us"] == 0 and all(row["by"] == "kernel" and row["bricks"] for row in rows)
    strategies = {row["strategy"] for row in rows}
    wanted = {"kernels": "layerwise", "unchained": "layerwise"}.get(variant, variant)
    assert wanted in strategies or wanted == "auto"
    ops = "+".join(row["ops"] for row in rows)
    assert ("PixelChain" in ops) == (variant != "unchained") and ("Rowwise" in ops) == (variant == "unchained")
