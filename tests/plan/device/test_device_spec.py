import dataclasses
import os

import pytest

from brickrt.plan.device.device_spec import ISAS, PRESETS, DeviceSpec, device_named, host_device
from brickrt.plan.options import PlanOptions


def test_the_host_is_read():
    device = host_device()
    assert device.kind == "cpu" and device is host_device()
    assert 1 <= device.cores <= (os.cpu_count() or 1)
    assert 2**12 <= device.l1 <= device.l2 and device.l2 < device.memory
    assert (device.lanes, device.registers) == ISAS[device.isa]
    assert device.peak_gflops_per_core * device.cores > 1 and all(speed > 0 for speed in device.bandwidth.values())
    assert device.bandwidth["l2"] >= device.bandwidth["memory"] / 4


@pytest.mark.parametrize("isa", ISAS)
def test_an_instruction_set_can_be_asked_for(isa: str):
    assert (host_device(isa).lanes, host_device(isa).registers) == ISAS[isa]


def test_unknown_names_are_refused_in_one_line():
    with pytest.raises(ValueError, match="'mmx' is unknown: use one of avx512, avx2"):
        host_device("mmx")
    with pytest.raises(ValueError, match="'tpu' is unknown: use one of cpu, h200"):
        device_named("tpu")


@pytest.mark.parametrize("device", [host_device(), *PRESETS.values()], ids=lambda d: d.kind)
def test_specs_are_plain_data(device: DeviceSpec):
    again = DeviceSpec(**device.to_dict())
    assert again == device and hash(again) == hash(device)
    assert dataclasses.replace(device, cores=3).cores == 3


@pytest.mark.parametrize(
    ("field", "value"), [("strategy", "merged"), ("brick", 0), ("brick", 2.5), ("brick", True), ("max_layers", -1)]
)
def test_impossible_options_are_refused_in_one_line(field: str, value: object):
    with pytest.raises(ValueError, match=field) as error:
        PlanOptions(**{field: value})  # type: ignore[arg-type]
    assert "\n" not in str(error.value)
