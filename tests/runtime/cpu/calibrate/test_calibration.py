from __future__ import annotations

import json
import math
from dataclasses import asdict, replace

import numpy as np
import pytest

from brickrt.ops.cpu.paired.pairing import PERIOD, pair_products
from brickrt.plan.device.device_spec import host_device
from brickrt.runtime.cpu.calibrate import calibration as calibrating
from brickrt.runtime.cpu.calibrate.calibration import calibrated, calibration, measured
from brickrt.runtime.cpu.calibrate.measured import LEVELS, CoreSpeeds, Measured
from brickrt.runtime.cpu.calibrate.microbenchmarks import OVER_L3, SoleCore, level_bytes, measure
from brickrt.runtime.cpu.calibrate.planned_speeds import planned
from brickrt.runtime.cpu.calibrate.probe_loops import LINKS, PERIODS, Probes, probes
from brickrt.runtime.cpu.compile.host_isa import host_isa
from brickrt.runtime.engines import choose_engine

SPEC = replace(host_device(), isa="avx512", lanes=16, cores=2, l2=1 << 20, l3=32 << 20)
CORE = CoreSpeeds(3.6, 0.98, 1.4, {"l2": 101.0, "l3": 80.0, "memory": 30.0})
GOOD = Measured(CORE, peak_gflops_per_core=112.0, bandwidth=CORE.bandwidth, task_overhead_us=0.02)
OTHER = replace(GOOD, core=replace(CORE, vectors_per_cycle=1.9))  # of another class


@pytest.fixture
def measuring(monkeypatch, tmp_path):
    """Calibration switched on, with an empty cache. It measures what the list holds."""
    figures = [GOOD]
    monkeypatch.setenv("BRICKRT_CALIBRATE", "1")
    monkeypatch.setenv("BRICKRT_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(calibrating, "measure_apart", lambda spec: figures[0])
    return figures


def test_plans_see_classes_and_others_what_was_measured(measuring):
    device = calibrated(SPEC)
    assert device == planned(SPEC, CORE) != SPEC
    assert replace(device, **{name: getattr(SPEC, name) for name in _CHANGED}) == SPEC
    shown = measured(SPEC)
    assert shown == measured(device)
    assert (shown.peak_gflops_per_core, shown.task_overhead_us) == (112.0, 0.02)
    assert shown.bandwidth == GOOD.bandwidth and shown.core_bandwidth == CORE.bandwidth


_CHANGED = ("peak_gflops_per_core", "one_a_cycle", "pairs", "bandwidth", "core_bandwidth", "task_overhead_us")


def test_it_is_measured_once(measuring, tmp_path):
    first = calibrated(SPEC)
    measuring[:] = [OTHER]
    calibrating._remembered.cache_clear()
    assert calibrated(SPEC) == first
    assert calibrated(replace(SPEC, l2=1 << 21)).peak_gflops_per_core > first.peak_gflops_per_core
    assert calibration(SPEC, again=True).measured == OTHER
    assert calibrated(SPEC).peak_gflops_per_core > first.peak_gflops_per_core


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"core": replace(CORE, clock_ghz=0.1)}, "clock"),
        ({"core": replace(CORE, vectors_per_cycle=9.0)}, "vectors"),
        ({"core": replace(CORE, vectors_per_cycle=0.1)}, "vectors"),
        ({"core": replace(CORE, paired_per_cycle=9.0)}, "paired"),
        ({"core": replace(CORE, bandwidth={"l2": 1000.0, "l3": 80.0, "memory": 30.0})}, "from l2"),
        ({"core": replace(CORE, bandwidth={"l2": 100.0, "l3": 80.0, "memory": 0.3})}, "from memory"),
        ({"task_overhead_us": 100.0}, "µs"),
    ],
)
def test_figures_that_make_no_sense_are_not_used(measuring, change, named):
    measuring[:] = [replace(GOOD, **change)]
    found = calibration(SPEC)
    assert found.refused and named in found.refused
    assert calibrated(SPEC) == measured(SPEC) == SPEC
    calibrating._remembered.cache_clear()
    measuring[:] = [GOOD]
    assert calibrated(SPEC) == SPEC  # refused for good, until asked again
    assert calibration(SPEC, again=True).refused is None


def test_levels_that_could_not_be_told_apart_keep_the_table(measuring):
    measuring[:] = [replace(GOOD, core=replace(CORE, bandwidth={"l2": 100.0}), bandwidth={"l2": 200.0})]
    device = measured(SPEC)
    assert device.bandwidth["memory"] == SPEC.bandwidth["memory"]
    assert device.bandwidth_at("memory", 1) == SPEC.bandwidth["memory"] / 2
    assert device.bandwidth_at("l2", 1) == device.core_bandwidth["l2"] < device.bandwidth_at("l2", 2)


def test_it_can_be_turned_off(measuring, monkeypatch):
    monkeypatch.setenv("BRICKRT_CALIBRATE", "0")
    assert calibrated(SPEC) == SPEC and "BRICKRT_CALIBRATE" in (calibration(SPEC).refused or "")
    assert choose_engine("cpu").spec == host_device()


def _levels(name: str) -> dict:
    """Figures of one level of memory of this name."""
    levels = {"bandwidth": {name: 1.0}}
    return asdict(GOOD) | levels | {"core": asdict(CORE) | levels}


def test_what_cannot_be_kept_is_not_used(measuring, monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("BRICKRT_CACHE_DIR", str(tmp_path / "file"))
    assert calibrated(SPEC) == SPEC and "cannot be written" in (calibration(SPEC).refused or "")


@pytest.mark.parametrize(
    "change",
    [
        {"refused": 3},
        {"measured": None},
        {"measured": []},
        {"surplus": 1},
        {"measured": asdict(GOOD) | {"task_overhead_us": 1e9}},
        {"measured": asdict(GOOD) | {"peak_gflops_per_core": -1.0}},
        {"measured": asdict(GOOD) | {"peak_gflops_per_core": 0}, "refused": "why"},
        {"measured": asdict(GOOD) | {"task_overhead_us": math.nan}, "refused": "why"},
        {"measured": asdict(GOOD) | {"task_overhead_us": "0.1"}, "refused": "why"},
        {"measured": asdict(GOOD) | {"bandwidth": {"l2": 10**400, "l3": 1.0, "memory": 1.0}}, "refused": "why"},
        {"measured": asdict(GOOD) | {"bandwidth": {"l2": 200.0}}, "refused": "why"},
        {"measured": asdict(GOOD) | {"bandwidth": [200.0]}, "refused": "why"},
        {"measured": asdict(GOOD) | {"core": None}, "refused": "why"},
        {"measured": asdict(GOOD) | {"core": {"clock_ghz": 3.0}}, "refused": "why"},
        {"measured": asdict(GOOD) | {"core": asdict(CORE) | {"clock_ghz": True}}, "refused": "why"},
        {"measured": asdict(GOOD) | {"core": asdict(CORE) | {"clock_ghz": 0.01}}},
        {"measured": asdict(GOOD) | {"core": asdict(CORE) | {"bandwidth": []}}, "refused": "why"},
        {"measured": _levels("l9"), "refused": "why"},
    ],
)
def test_what_is_no_calibration_is_measured_again(measuring, change):
    """Even where it was kept with the caches' secret."""
    store, name = calibrating._store(), calibrating._name(SPEC)
    store.put(name, json.dumps({"measured": asdict(GOOD), "refused": None} | change).encode())
    calibrating._remembered.cache_clear()
    assert calibration(SPEC) == calibrating.Calibration(GOOD)
    assert json.loads(store.get(name)) == {"measured": asdict(GOOD), "refused": None}


@pytest.mark.parametrize("text", [b"", b"[]", b"null", b"{", b"[" * 100_000, b"\xff"])
def test_what_is_no_text_of_a_calibration_is_measured_again(measuring, text):
    calibrating._store().put(calibrating._name(SPEC), text)
    calibrating._remembered.cache_clear()
    assert calibration(SPEC) == calibrating.Calibration(GOOD)


def test_all_engines_plan_alike(measuring):
    specs = [choose_engine(device).spec for device in ("cpu", "reference", "null")]
    assert specs[0] == specs[1] == specs[2] == calibrated(host_device())


@pytest.mark.parametrize("isa", [None, "avx2"])
def test_the_probes_compute_what_they_say(isa):
    loops = probes(host_isa(host_device(isa)))
    third = 3 * loops.chunk
    a = np.arange(3 * third + 16, dtype=np.float32)
    want = np.concatenate([a[: 2 * third], a[:third] + a[third : 2 * third], a[3 * third :]])
    loops.stream(a.ctypes.data, third, 2)
    np.testing.assert_array_equal(a, want)
    b = np.arange((loops.chains + 2) * loops.lanes, dtype=np.float32)
    b[: 2 * loops.lanes] = 0.5
    loops.multiply_add(2, b.ctypes.data)  # s → s/2 + 0.5 → s/4 + 0.75, in every chain
    np.testing.assert_array_equal(b[2 * loops.lanes :], np.arange(2 * loops.lanes, len(b)) / 4 + 0.75)
    c = np.array([7, 1, 2], np.int64)
    loops.count(2, c.ctypes.data)
    want = 7
    for _ in range(LINKS):  # half of a turn's links add, half flip bits
        want = (want + 1) ^ 2
    assert list(c) == [want, 1, 2]


@pytest.mark.parametrize("isa", [None, "avx2"])
def test_the_paired_probe_reads_and_adds_all(isa):
    """Small integers, whose sums are exact."""
    loops, rng, rounds = probes(host_isa(host_device(isa))), np.random.default_rng(0), PERIODS + 1
    columns = rng.integers(-9, 9, (PERIODS, PERIOD, loops.lanes))
    rows = rng.integers(-9, 9, (loops.chains, PERIODS, PERIOD))
    buffer = np.concatenate([columns.ravel(), rows.ravel(), np.ones(loops.chains * loops.lanes)]).astype(np.float32)
    loops.pair(rounds, buffer.ctypes.data)
    want = np.ones((loops.chains, loops.lanes))
    for n in range(rounds):
        a, b = rows[:, n % PERIODS], columns[n % PERIODS]
        want += a @ b + pair_products(a.T)[:, None] + pair_products(b)
    np.testing.assert_array_equal(buffer[-want.size :].reshape(want.shape), want)
    assert len(buffer) <= (PERIODS + 1) * PERIOD * (loops.lanes + loops.chains)


@pytest.mark.parametrize("isa", [None, "avx2"])
def test_measuring_gives_figures_that_can_be_kept(isa):
    found = measure(host_device(isa))
    assert found.implausible() is None
    assert found.bandwidth.keys() == found.core.bandwidth.keys() <= set(LEVELS)
    assert Measured.of(json.loads(json.dumps(asdict(found)))) == found


def test_turns_of_memory_move_what_no_cache_can_hold():
    """Neither what the turns of caches left there, nor what L3 keeps by chance of a buffer little larger than it."""
    moved: list[range] = []

    def stream(at: int, third: int, sweeps: int) -> None:
        moved.append(range(at, at + 12 * third))

    core = SoleCore(Probes(lambda *_: None, lambda *_: None, stream, lambda *_: None, chains=16, lanes=16), start=0)
    parts, turns = level_bytes(SPEC), core.turns(level_bytes(SPEC), SPEC)
    for level in ("l2", "l3"):
        for _ in range(20):
            turns[level]()
    caches, moved[:] = list(moved), []
    while not moved or len({r.start for r in moved}) == len(moved):
        turns["memory"]()
    assert max(r.stop for r in caches) <= min(r.start for r in moved)
    assert max(r.stop for r in moved) <= SPEC.cores * max(parts.values())
    assert sum(map(len, moved[:-1])) > 0.9 * OVER_L3 * SPEC.l3
    server = replace(SPEC, memory=256 << 30)
    assert level_bytes(replace(server, l3=340 << 20))["memory"] == OVER_L3 * (340 << 20) // SPEC.cores
    assert "memory" not in level_bytes(replace(server, l3=520 << 20))
