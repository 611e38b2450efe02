"""The tables of what merging is worth, on the host: which programs they time, and that those are right."""

from __future__ import annotations

import numpy as np
import pytest

from bench.gpu.asks import atomics, merging
from brickrt.graph.errors import BrickError
from brickrt.runtime.cuda.kernels.compile import compile_module, compiler_version
from brickrt.runtime.session.runtime import Runtime
from tests.support.cuda.callback_kernels import CallbackDriver, use_callbacks
from tests.support.cuda.engines import engine_on
from tests.support.cuda.host_driver import HostDriver
from tests.support.cuda.host_kernels import needs_compiler

pytestmark = needs_compiler


@pytest.fixture
def tables(monkeypatch, tmp_path):
    monkeypatch.setenv("BRICKRT_CACHE_DIR", str(tmp_path))
    return merging


@pytest.fixture
def engine(monkeypatch):
    use_callbacks(monkeypatch)
    return engine_on(CallbackDriver())


def test_a_chain_is_cut_as_asked(tables, engine):
    """Six convolutions, merged in all four ways by both strategies, beside layers."""
    model = tables.convolutions(6, 2, 6)
    rows = list(tables.chain(engine, 2, model, tables.by_layers()))
    assert [row["cut"] for row in rows[1:]] == [
        f"{s} {g}" for s in ("padded", "memoized") for g in ("2+2+2", "3+3", "4+2", "6")
    ]
    assert all(row["us"] > 0 and row["over_layers"]["median"] > 0 for row in rows)
    bench = tables.ChainPrograms(engine, model)
    for groups in tables.GROUPS:
        plan = bench.merged(groups, "padded", 4).verify()
        assert tuple(len(s.nodes) for s in plan.subgraphs if s.strategy == "padded") == groups


def test_a_chain_in_bricks_is_right(tables, engine):
    model = tables.convolutions(6, 2, 6)
    bench = tables.ChainPrograms(engine, model)
    x = np.random.default_rng(1).standard_normal((1, 2, 6, 6, 6), np.float32)
    (want,) = Runtime(model, device="reference").execute({"x": x}).values()
    for strategy, edge in (("padded", 4), ("memoized", 8)):
        program, out = bench.program(bench.merged((3, 3), strategy, edge)), np.empty_like(want)
        program.run([x], [out])
        np.testing.assert_allclose(out, want, rtol=0, atol=1e-5 * np.abs(want).max())


def test_subgraphs_of_a_network_beside_their_layers(tables, engine):
    model = tables.convolutions(4, 2, 8, rank=2)
    rows = list(tables.subgraphs(engine, 2, model))
    assert {row["strategy"] for row in rows} == {"padded", "memoized"}
    assert all(len(row["ops"]) > 1 and row["us"] > 0 for row in rows)
    assert rows[0]["over_layers"]["median"] > 0


def test_kernels_of_atomics_compile(tables):
    try:
        compiler_version()
    except BrickError as e:
        pytest.skip(str(e))
    for what in atomics.KINDS.values():
        source = atomics.source(what)
        (found,) = compile_module(source.text, "sm_90").functions
        assert found.name == source.name and not found.spill_stores


def test_words_are_timed(tables):
    """The kernels of the table of atomics run."""
    driver = HostDriver()
    rows = list(tables.atomics(driver))
    driver.check()
    assert len(rows) == 8 and {row["blocks"] for row in rows} == {1, driver.spec.cores}
