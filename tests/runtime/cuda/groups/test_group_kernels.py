"""Groups of padded bricks with the kernels that GPUs run, on the host, and compiled for GPUs."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

import brickrt.ops.cuda.all_kernels  # noqa: F401  (makes the kernels known)
from brickrt.graph.errors import BrickError
from brickrt.ops.cuda.kernel import make_kernel
from brickrt.ops.cuda.operand import dense
from brickrt.ops.expr import apply, arg, const
from brickrt.ops.operators.conv import Conv, ConvTranspose
from brickrt.ops.operators.map import Map
from brickrt.ops.operators.matmul import MatMul
from brickrt.ops.operators.move import Reorder
from brickrt.ops.operators.pool import Pool
from brickrt.ops.types import TensorType
from brickrt.runtime.cuda.kernels import compile as compiling
from brickrt.runtime.cuda.kernels.kernel_sources import function_of, source_of
from tests.support.cuda.group_runs import check, forms
from tests.support.cuda.host_driver import HostDriver
from tests.support.cuda.host_kernels import needs_compiler
from tests.support.graphs.plan_graphs import Sketch

F32 = np.dtype(np.float32)
QUICK = partial(HostDriver, flags=("-O0",))  # better code would take longer to make than it saves


@needs_compiler
@pytest.mark.parametrize("launch", ["streams", "graph"])
def test_on_the_host(monkeypatch, tmp_path, launch):
    """x → conv → max pool → transposed conv → sigmoid → conv → y"""
    monkeypatch.setenv("BRICKRT_CACHE_DIR", str(tmp_path))
    s = Sketch()
    x = s.conv(s.input(1, 6, 13, 11), 8)
    x = s.add(Pool("max", (3, 3), (1, 1), (1, 1), (1, 1), (1, 1)), x)
    x = s.add(ConvTranspose((2, 2), (2, 2), (1, 1), (0, 0), (0, 0), (0, 0)), x, s.constant(8, 6, 2, 2))
    graph = s.graph(s.conv(s.map("sigmoid", x), 5))
    program, _ = check(graph, launch, 5, brick=8, make=QUICK)
    assert len(program._calls.layers) >= 3 and not program.notes


@needs_compiler
@pytest.mark.parametrize("most", [99, 0])
def test_gates_on_the_host(monkeypatch, tmp_path, most):
    """x → 3×3 → 1×1, gated, of three parts → conv → y"""
    monkeypatch.setenv("BRICKRT_CACHE_DIR", str(tmp_path))
    s = Sketch()
    a, b, c = (arg(k, F32) for k in range(3))
    gate = apply("add", apply("mul", a, apply("sigmoid", b)), c)
    op = Conv((1, 1), (1, 1), (1, 1), (0, 0), (0, 0), 1, True, gate, 3)
    y = s.add(op, s.conv(s.input(1, 6, 13, 11), 8), s.constant(24, 8, 1, 1), s.constant(24))
    program, _ = check(s.graph(s.conv(y, 5)), "graph", 5, brick=8, make=QUICK, most=most)
    assert len(program._calls.layers) >= 3 and not program._calls.reasons


@needs_compiler
@pytest.mark.parametrize("constant", [True, False])
@pytest.mark.parametrize("most", [99, 0])
def test_products_on_the_host(monkeypatch, tmp_path, constant, most):
    """a → + sums of rows → · b, of each head or a constant → relu"""
    monkeypatch.setenv("BRICKRT_CACHE_DIR", str(tmp_path))
    s = Sketch()
    a, more = s.input(2, 3, 19, 7), () if constant else (2, 3)
    b = s.constant(7, 5) if constant else s.map("abs", s.input(*more, 7, 5))
    a = s.map("add", a, s.reduce(a, 3))
    y = s.add(MatMul(constant, apply("max", arg(0, F32), const(0, F32))), a, b, *[s.constant(5)] * constant)
    program, _ = check(s.graph(s.map("abs", y)), "graph", 7, brick=8, make=QUICK, most=most)
    assert {form.kind for form in forms(program)} == {"conv" if constant else "matmul"} and not program._calls.reasons


@pytest.fixture
def compiler() -> None:
    try:
        compiling._compiler()
    except BrickError as e:
        pytest.skip(str(e))


@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
def test_compiled(arch, compiler):
    """What fetches, fills and brings back, for both layouts of the whole tensor."""
    kind, brick = TensorType((2, 6, 16, 16), np.dtype(np.float32)), TensorType((8, 6, 10, 10), np.dtype(np.float32))
    own = dense(kind, "last", brick.shape)
    kernels = [make_kernel(Map(const(0, kind.dtype)), (), dense(brick, "last"), ())]
    for whole in (dense(kind, "last"), dense(kind)):
        kernels += [make_kernel(Reorder("last"), (a,), b, (False,)) for a, b in ((whole, own), (own, whole))]
    sources = [source_of([function_of(kernel)], False, 256) for kernel in kernels]
    functions = compiling.compile_module("\n".join(source.text for source in sources), arch).functions
    assert len(functions) == len(kernels)
    assert all((f.stack, f.spill_stores, f.spill_loads) == (0, 0, 0) for f in functions)
