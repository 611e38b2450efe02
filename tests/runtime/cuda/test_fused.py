"""Fused bricks on the host: every family of kernels, in every precision, and the partial sums of pools."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from bench.gpu.support.kernel_figures import ModelPrograms
from bench.gpu.support.programs import run_program
from brickrt import zoo
from brickrt.graph.onnx_import.source import load
from brickrt.ops.cuda.kernel import Kernel
from brickrt.ops.cuda.products.conv_base import ConvBase
from brickrt.ops.cuda.products.matmul import MatMulKernel
from brickrt.ops.cuda.shared_memory import FUSED_IN_PLACE
from brickrt.plan.options import PlanOptions
from brickrt.plan.plan import make_plan
from brickrt.runtime.cuda.program import CudaProgram
from brickrt.runtime.lowering.lower import lower
from tests.support.cuda.cases.fused_cases import cut_along_channels, images, kernels_of, rows
from tests.support.cuda.engines import runtime_on
from tests.support.cuda.fused_runs import FUSED_TOLERANCE, check_fused
from tests.support.cuda.host_driver import SMALL, HostDriver
from tests.support.cuda.host_kernels import needs_compiler
from tests.support.graphs.by_definition import run_model

pytestmark = needs_compiler
ALONE = {"ViewKernel", "PartialReduceKernel"}  # the latter in the test of partial sums


def kernels(model, precision="fp32", brick=4, chains=True):
    """Those of a model's fused bricks."""
    graph = ModelPrograms.of(model, chains).in_precision(precision)
    return kernels_of(lower(make_plan(graph, SMALL, PlanOptions("fused", brick, precision=precision)).verify()))


def test_every_family_is_in_the_models_below():
    """Reorders and transposed copies stand alone; chains are on tensor cores."""
    known = {kind for kind in leaves(Kernel) if kind.__module__.startswith("brickrt.")}
    found = [*kernels(images()), *kernels(rows()), *kernels(images(), "fp16")]
    seen = {type(kernel) for kernel in found}
    assert {kind.__name__ for kind in known - seen} == ALONE


def leaves(kind):
    """The classes below one that no other is derived from."""
    return set().union(*map(leaves, kind.__subclasses__())) if kind.__subclasses__() else {kind}


def test_some_products_read_their_first_factor_in_place():
    found = kernels(images(), "fp16", chains=False) + kernels(rows(), "tf32")
    products = [k for k in found if isinstance(k, ConvBase | MatMulKernel) and k.ins[0].shared]
    assert {type(k).__name__ for k in products} == {"ProductConv", "TransposedConv", "MatMulKernel"}
    assert all(k.core.in_place and k.shared <= FUSED_IN_PLACE for k in products)


def test_rows_in_fused_bricks(monkeypatch):
    """Images are in tests/ops/cuda/test_networks_as_ptx.py; networks of the zoo and all precisions are what
    `python -m tests.support.cuda.fused_runs` runs."""
    check_fused(monkeypatch, HostDriver(), rows(), "bf16")


@pytest.mark.parametrize(("made", "precision"), [(images, "fp32"), (rows, "fp16")])
def test_bricks_of_some_channels(made, precision):
    model, driver = made(), HostDriver()
    graph = ModelPrograms.of(model).in_precision(precision)
    plan = make_plan(graph, SMALL, PlanOptions("fused", 4, precision=precision))
    cut = cut_along_channels(plan).verify()
    assert sum(s.bricks for s in cut.subgraphs) > sum(s.bricks for s in plan.subgraphs)
    x = np.random.default_rng(0).standard_normal(plan.graph.types["x"].shape).astype(np.float32)
    (found,) = run_program(CudaProgram(lower(cut), driver), {"x": x})
    driver.check()
    want = run_model(load(model), {"x": x})["y"]
    np.testing.assert_allclose(found, want, rtol=0, atol=FUSED_TOLERANCE[precision] * np.abs(want).max())


def test_partial_sums_are_made_in_fused_bricks(monkeypatch):
    """Bricks of 16 in an image of 40: segments and bricks at the ends are shorter."""
    model = zoo.build("nafnet", size=40, blocks=1)
    x = np.random.default_rng(0).standard_normal((1, 3, 40, 40)).astype(np.float32)
    want = run_model(load(model), {"x": x})["y"]
    driver = HostDriver()
    driver.spec = replace(SMALL, l2=1 << 10)
    runtime = runtime_on(monkeypatch, driver, model, "graph", strategy="fused", brick=16)
    result = runtime.execute({"x": x})["y"]
    np.testing.assert_allclose(result, want, rtol=0, atol=1e-4 * np.abs(want).max())
    np.testing.assert_array_equal(runtime.execute({"x": x})["y"], result)
    driver.check()
    (program,) = runtime.plan.programs
    hosts = [s for s in program.tasks.plan.subgraphs if s.partial_reductions]
    assert [s.strategy for s in hosts] == ["fused"]
