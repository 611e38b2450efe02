"""The host is measured by another process, and by this one where there is none."""

from __future__ import annotations

import sys
from dataclasses import replace

import pytest

from brickrt.plan.device.device_spec import host_device
from brickrt.runtime.cpu.calibrate import measure_apart as apart
from brickrt.runtime.cpu.calibrate.measured import CoreSpeeds, Measured

HERE = Measured(CoreSpeeds(1.0, 1.0, 1.0, {}), peak_gflops_per_core=1.0, bandwidth={}, task_overhead_us=1.0)


@pytest.fixture(autouse=True)
def here(monkeypatch):
    """What this process would measure."""
    monkeypatch.setattr(apart, "_measure", lambda spec: HERE)


@pytest.mark.skipif(host_device().isa == "generic", reason="this processor has no multiply-add to measure")
def test_another_process_measures():
    found = apart.measure_apart(host_device())
    assert isinstance(found, Measured) and found != HERE
    assert found.peak_gflops_per_core > 0 and found.bandwidth


@pytest.mark.parametrize("interpreter", ["", "/nowhere/python", "/bin/false", "/bin/true"])
def test_without_another_process_this_one_measures(monkeypatch, interpreter):
    monkeypatch.setattr(sys, "executable", interpreter)
    assert apart.measure_apart(host_device()) == HERE


def test_a_process_that_fails_is_none():
    assert apart.measure_apart(replace(host_device(), cores=0)) == HERE
