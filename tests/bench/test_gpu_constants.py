"""What measures the figures of the cost model: kernels that are right on the host, and lines that say what to write."""

from __future__ import annotations

import ctypes
import json
import sys

import numpy as np
import pytest

from bench.gpu import constants as advice
from bench.gpu.asks import constants
from bench.gpu.support.common import engine
from brickrt.graph.errors import BrickError
from brickrt.plan.device.device_spec import PRESETS
from brickrt.runtime.cuda.kernels.compile import compile_modules, compiler_version
from tests.support.cuda.host_driver import HostDriver
from tests.support.cuda.host_kernels import needs_compiler


def words(memory, dtype):
    return np.frombuffer((ctypes.c_char * memory.nbytes).from_address(memory.address), dtype)


@needs_compiler
@pytest.mark.parametrize("rounds", [1, 2])
def test_vectors_change_hands_in_shared_memory(rounds):
    """After each round a thread has what its neighbour had."""
    driver = HostDriver()
    found = constants.copy_shared(driver, rounds)
    driver.check()
    threads = np.tile(np.arange(constants.THREADS), driver.resident * driver.spec.cores)
    owner = threads ^ 1 if rounds % 2 else threads
    np.testing.assert_array_equal(words(found.memory, np.float32), constants.PIECES * owner)
    assert found.gb_per_s > 0


@needs_compiler
def test_all_of_global_memory_is_copied():
    driver = HostDriver()
    found = constants.copy_global(driver, 300_000, 1_000_000)
    driver.check()
    copied = words(found.memory, np.uint64)
    assert 300_000 <= copied.nbytes < 500_000
    np.testing.assert_array_equal(copied, np.arange(len(copied)))


@needs_compiler
def test_launches_of_a_graph_follow_one_another():
    driver = HostDriver()
    assert constants.launch_us(driver, 5) > 0
    assert ("graph", 5) in driver.calls


def test_kernels_compile():
    try:
        compiler_version()
    except BrickError as e:
        pytest.skip(str(e))
    texts = constants.SHARED, constants.GLOBAL, constants.EMPTY
    for module in compile_modules(texts, "sm_90"):
        assert not any(f.spill_stores for f in module.functions)


def test_chains_of_pools_are_one_fused_kernel(monkeypatch):
    monkeypatch.setattr(constants, "SIZE", 64)
    chains = [constants.chain_of(engine("null", "graph", library=False), count) for count in constants.CHAINS]
    assert [chain.steps for chain in chains] == [count + 2 for count in constants.CHAINS]


def test_a_brick_and_its_steps_are_told_apart(monkeypatch):
    """3 µs for each brick, and a quarter for each step."""
    monkeypatch.setattr(constants, "chain_of", lambda on, n: constants.Chain(n + 2, 3 + 0.25 * (n + 2)))
    on = engine("null", "graph", library=False)
    found = constants.bricks(on)
    assert found["call_overhead_us"] == {"nominal": on.spec.call_overhead_us, "measured": pytest.approx(0.25)}
    assert found["FUSED_TASK_US"]["measured"] == pytest.approx(3.0)


def test_every_figure_is_asked_for(monkeypatch):
    monkeypatch.setattr(constants, "SIZE", 64)
    monkeypatch.setattr(constants, "SWEPT", 1 << 10)
    monkeypatch.setattr(constants, "BEYOND_L2_BYTES", 1 << 10)
    asked = {name for item in constants.items("null") for name in item.ask()}
    assert set(advice.PLACES) <= asked


def test_what_is_to_be_written_is_said(tmp_path, monkeypatch, capsys):
    """Half the shared memory's speed is half its bytes a cycle; what was not measured is said to be so."""
    nominal = PRESETS["h200"].bandwidth["shared"]
    rows = [
        {"step": "constants", "status": "ok", "bandwidth shared": {"nominal": nominal, "measured": nominal / 2}},
        {"step": "constants", "status": "ok", "FUSED_TASK_US": {"nominal": 1.0, "measured": 1.75}},
        {"step": "constants", "status": "failed", "bandwidth l2": {"nominal": 1.0, "measured": 1.0}},
    ]
    (tmp_path / "speeds.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    monkeypatch.setattr(sys, "argv", ["constants.py", str(tmp_path)])
    assert advice.main() == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].endswith("SHARED_BYTES = 64") and lines[1] == "bandwidth l2: not measured"
    assert lines[-1].endswith("= 1.75")


def test_a_folder_without_results_is_one_line(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["constants.py", str(tmp_path)])
    assert advice.main() == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "run python -m bench.gpu.first first" in line
