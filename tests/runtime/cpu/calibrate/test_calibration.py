from __future__ import annotations

import json
import math
from dataclasses import asdict, replace

import numpy as np
import pytest

from brickrt.plan.device.device_spec import DeviceSpec, host_device
from brickrt.runtime.cpu.calibrate import calibration as calibrating
from brickrt.runtime.cpu.calibrate.calibration import REACHED, STEP, calibrated, calibration, implausible, measured
from brickrt.runtime.cpu.calibrate.microbenchmarks import LEVELS, Measured, measure
from brickrt.runtime.cpu.calibrate.probe_loops import probes
from brickrt.runtime.cpu.compile.host_isa import host_isa
from brickrt.runtime.engines import choose_engine

SPEC = replace(host_device(), isa="avx512", lanes=16, cores=2, l2=1 << 20, l3=32 << 20)
GOOD = Measured(
    peak_gflops_per_core=112.0,
    bandwidth={"l2": 200.0, "l3": 120.0, "memory": 40.0},
    core_bandwidth={"l2": 101.0, "l3": 80.0, "memory": 30.0},
    task_overhead_us=0.02,
    steady=True,
)


@pytest.fixture
def measuring(monkeypatch, tmp_path):
    """Calibration switched on, with an empty cache. It measures what the list holds, one after the other."""
    figures = [GOOD]
    monkeypatch.setenv("BRICKRT_CALIBRATE", "1")
    monkeypatch.setenv("BRICKRT_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(calibrating, "measure", lambda spec: figures.pop(0) if len(figures) > 1 else figures[0])
    return figures


def test_plans_see_rounded_figures(measuring):
    device = calibrated(SPEC)
    exponent = math.log(device.peak_gflops_per_core) / math.log(STEP)
    assert exponent == pytest.approx(round(exponent), abs=1e-3)
    assert device.peak_gflops_per_core == pytest.approx(112, rel=0.13)
    assert device.bandwidth["memory"] == pytest.approx(40 * REACHED, rel=0.13)
    assert set(device.bandwidth) == set(SPEC.bandwidth)
    assert 0.2 < device.task_overhead_us < 0.4
    assert replace(device, **{name: getattr(SPEC, name) for name in _CHANGED}) == SPEC
    assert measured(SPEC).peak_gflops_per_core == 112.0 == measured(device).peak_gflops_per_core


_CHANGED = ("peak_gflops_per_core", "bandwidth", "core_bandwidth", "task_overhead_us")


def test_it_is_measured_once(measuring, tmp_path):
    first = calibrated(SPEC)
    measuring[:] = [replace(GOOD, peak_gflops_per_core=60.0)]
    calibrating._remembered.cache_clear()
    assert calibrated(SPEC) == first
    assert calibrated(replace(SPEC, l2=1 << 21)).peak_gflops_per_core < first.peak_gflops_per_core
    assert calibration(SPEC, again=True).measured == measuring[0]
    assert calibrated(SPEC).peak_gflops_per_core < first.peak_gflops_per_core


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"steady": False}, "busy"),
        ({"peak_gflops_per_core": 3.0}, "peak"),
        ({"peak_gflops_per_core": 900.0}, "peak"),
        ({"bandwidth": {"l2": 130.0, "l3": 120.0, "memory": 40.0}}, "from l2"),
        ({"bandwidth": {"l2": 200.0, "l3": 75.0, "memory": 40.0}}, "from l3"),
        ({"bandwidth": {"l2": 150.0, "l3": 90.0, "memory": 95.0}}, "memory"),
        ({"bandwidth": {"l2": 100.0, "l3": 119.0}, "core_bandwidth": {"l2": 60.0, "l3": 80.0}}, "slower"),
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


def test_a_busy_moment_is_measured_again(measuring):
    measuring[:] = [replace(GOOD, steady=False), GOOD]
    assert calibration(SPEC).refused is None


def test_levels_that_could_not_be_told_apart_keep_the_table(measuring):
    measuring[:] = [replace(GOOD, bandwidth={"l2": 200.0}, core_bandwidth={"l2": 100.0})]
    device = calibrated(SPEC)
    assert device.bandwidth["memory"] == SPEC.bandwidth["memory"]
    assert device.bandwidth_at("memory", 1) == SPEC.bandwidth["memory"] / 2
    assert device.bandwidth_at("l2", 1) == device.core_bandwidth["l2"] < device.bandwidth_at("l2", 2)


def test_it_can_be_turned_off(measuring, monkeypatch):
    monkeypatch.setenv("BRICKRT_CALIBRATE", "0")
    assert calibrated(SPEC) == SPEC and "BRICKRT_CALIBRATE" in (calibration(SPEC).refused or "")
    assert choose_engine("cpu").spec == host_device()


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
        {"measured": asdict(GOOD) | {"peak_gflops_per_core": 1e9}},
        {"measured": asdict(GOOD) | {"peak_gflops_per_core": -1.0}},
        {"measured": asdict(GOOD) | {"peak_gflops_per_core": 0}, "refused": "busy"},
        {"measured": asdict(GOOD) | {"task_overhead_us": math.nan}, "refused": "busy"},
        {"measured": asdict(GOOD) | {"task_overhead_us": "0.1"}, "refused": "busy"},
        {"measured": asdict(GOOD) | {"core_bandwidth": {"l2": 10**400}, "bandwidth": {"l2": 1.0}}, "refused": "busy"},
        {"measured": asdict(GOOD) | {"bandwidth": {"l2": 200.0}}, "refused": "busy"},
        {"measured": asdict(GOOD) | {"bandwidth": [200.0]}, "refused": "busy"},
        {"measured": asdict(GOOD) | {"core_bandwidth": {"l9": 1.0}, "bandwidth": {"l9": 1.0}}, "refused": "busy"},
        {"measured": asdict(GOOD) | {"steady": 1}, "refused": "busy"},
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
    lanes = host_device(isa).lanes
    b = np.arange(loops.vectors * lanes, dtype=np.float32)
    b[: 2 * lanes] = 0.5
    loops.multiply_add(2, b.ctypes.data)  # s → s/2 + 0.5 → s/4 + 0.75, in every chain
    np.testing.assert_array_equal(b[2 * lanes :], np.arange(2 * lanes, len(b)) / 4 + 0.75)


@pytest.mark.parametrize("isa", [None, "avx2"])
def test_measuring_gives_figures_that_can_be_kept(isa):
    spec: DeviceSpec = host_device(isa)
    found = measure(spec)
    assert found.peak_gflops_per_core > 0 and found.task_overhead_us > 0
    assert found.bandwidth.keys() == found.core_bandwidth.keys() <= set(LEVELS)
    assert Measured(**json.loads(json.dumps(asdict(found)))) == found
    assert implausible(replace(found, steady=False), spec)
