"""Processors with tile registers: this one, or a described one whose code is compiled but not run."""

from __future__ import annotations

import pytest
from llvmlite import binding as llvm

from brickrt.ops.cpu.amx.permission import may_use_tiles
from brickrt.ops.cpu.isa import AMX_FEATURES, Isa

HOST_TILES = Isa(16, 32, llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten())
DESCRIBED = Isa(16, 32, "sapphirerapids", ",".join(("+avx512f,+avx512bw,+avx512dq,+avx512vl", *AMX_FEATURES)))
needs_tiles = pytest.mark.skipif(
    not (HOST_TILES.multiplies_tiles and may_use_tiles()), reason="this processor has no tile registers (AMX)"
)
