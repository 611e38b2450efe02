"""GPUs as the planner sees them, and what is said where there is none."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import replace
from functools import reduce
from pathlib import Path

import pytest

from brickrt.graph.errors import BrickError
from brickrt.ops import cuda
from brickrt.plan.device.device_spec import PRESETS
from brickrt.runtime import engines
from brickrt.runtime.cuda.driver import detect_gpu
from brickrt.runtime.cuda.driver.device_spec import spec_of
from brickrt.runtime.engines import choose_engine
from tests.support.cuda.gpu_properties import PROPERTIES


@pytest.mark.parametrize("name", PRESETS)
def test_what_devices_say_of_themselves_is_near_the_presets(name):
    spec, preset = spec_of(PROPERTIES[name]), PRESETS[name]
    for field in ("name", "kind", "isa", "cores", "l1", "l2", "memory"):
        assert getattr(spec, field) == getattr(preset, field)
    for level, expected in preset.bandwidth.items():
        assert spec.bandwidth[level] == pytest.approx(expected, rel=0.1)
    assert spec.peak_gflops_per_core == pytest.approx(preset.peak_gflops_per_core, rel=0.1)
    for kind, expected in preset.matrix_gflops_per_core.items():
        assert spec.matrix_gflops_per_core[kind] == pytest.approx(expected, rel=0.1)


def test_devices_newer_than_all_known_are_like_the_latest():
    spec = spec_of(replace(PROPERTIES["h200"], capability=(13, 0)))
    assert spec.isa == "sm_130"
    assert spec.peak_gflops_per_core > 0


def test_without_cupy_one_line_says_how_to_get_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "cupy", None)
    for name in ("driver", "objects", "import"):
        monkeypatch.delitem(sys.modules, f"brickrt.runtime.cuda.driver.cupy_{name}", raising=False)
    with pytest.raises(BrickError, match=r"needs CuPy \(.*\): pip install 'brickrt\[cuda13\]'") as told:
        choose_engine("cuda")
    assert "\n" not in str(told.value)


def test_without_a_gpu_one_line_says_so():
    cupy = pytest.importorskip("cupy", reason="without CuPy the line is another one")
    try:
        there = cupy.cuda.runtime.getDeviceCount()
    except cupy.cuda.runtime.CUDARuntimeError:
        there = 0
    if there:
        pytest.skip("there is a GPU")
    with pytest.raises(BrickError, match=r"device .cuda.: .*use --device cpu") as told:
        choose_engine("cuda")
    assert "\n" not in str(told.value)


def test_unknown_ways_to_launch():
    with pytest.raises(
        BrickError, match="launch 'fast' is unknown: use one of auto, streams, dynamic, graph, persistent"
    ):
        choose_engine("cpu", launch="fast")


def test_programs_know_all_kernels():
    """In a process that imports nothing else."""
    folder = Path(cuda.__file__).parent
    files = [path for path in folder.rglob("*.py") if "@kernel_for" in path.read_text()]
    names = {".".join(path.relative_to(folder).with_suffix("").parts) for path in files}
    look = "import sys, brickrt.runtime.cuda.program; print(*sys.modules)"
    told = subprocess.run([sys.executable, "-c", look], capture_output=True, text=True, check=True).stdout
    assert names and {f"brickrt.ops.cuda.{name}" for name in names} <= set(told.split())


def test_what_the_driver_calls_is_there():
    """Without a GPU nothing of it can be called; that names exist is what can be known."""
    pytest.importorskip("cupy", reason="the driver is CuPy's")
    from brickrt.runtime.cuda.driver import cupy_driver, cupy_import, cupy_objects

    text = "".join(Path(module.__file__).read_text() for module in (cupy_driver, cupy_import, cupy_objects))
    used = set(re.findall(r"(?<![\w.])(?:cu|cudart|cupy)(?:\.[A-Za-z_]\w*)+", text))
    assert len(used) > 20
    for name in used:
        root, *path = name.split(".")
        assert reduce(getattr, path, getattr(cupy_import, root)) is not None, name


@pytest.mark.parametrize("device", ["auto", "cpu", "reference"])
def test_ways_to_launch_are_for_gpus(device):
    with pytest.raises(BrickError, match="launch 'graph' is how a GPU runs plans: use it with device cuda"):
        choose_engine(device, launch="graph")


def test_auto_is_the_cpu_without_a_gpu(monkeypatch):
    monkeypatch.delenv("BRICKRT_DEVICE")
    monkeypatch.setattr(detect_gpu, "gpu_present", lambda: False)
    assert choose_engine("auto").name == "cpu"


def test_auto_is_a_gpu_that_can_be_used(monkeypatch, capsys):
    """The environment, or an instruction set that is asked for, says otherwise; what is missing is told."""
    gpu = replace(choose_engine("cpu"), name="cuda")
    monkeypatch.setattr(detect_gpu, "gpu_present", lambda: True)
    monkeypatch.setattr(engines, "_cuda", lambda launch: gpu)
    assert choose_engine("auto").name == "cpu"
    monkeypatch.delenv("BRICKRT_DEVICE")
    assert choose_engine("auto") is gpu
    assert choose_engine("auto", isa="generic").name == "cpu"

    def missing(launch):
        raise BrickError("device 'cuda' needs CuPy: install it")

    monkeypatch.setattr(engines, "_cuda", missing)
    assert choose_engine("auto").name == "cpu"
    assert capsys.readouterr().err == "brickrt: running on the CPU. device 'cuda' needs CuPy: install it\n"


@pytest.mark.parametrize(("code", "found"), [(0, (9, 0)), (100, (0, 0))])
def test_the_driver_is_asked_for_the_capability(monkeypatch, code, found):
    """As CUDA's own interface has it; 100 is the error that there is no device."""

    class Cuda:
        def cuInit(self, flags):
            return code

        def cuDeviceGet(self, device, number):
            device._obj.value = 5
            return 0

        def cuDeviceGetAttribute(self, value, attribute, device):
            assert device.value == 5
            value._obj.value = {75: 9, 76: 0}[attribute]
            return 0

    monkeypatch.setattr(detect_gpu.ctypes, "CDLL", lambda name: Cuda())
    assert detect_gpu._capability() == found


def test_without_a_driver_there_is_no_gpu(monkeypatch):
    monkeypatch.setattr(detect_gpu, "LIBRARY", "libnothing.so.1")
    assert not detect_gpu.gpu_present()


def test_a_bad_name_in_the_environment_is_said_to_be_there(monkeypatch):
    monkeypatch.setenv("BRICKRT_DEVICE", "gpu")
    with pytest.raises(BrickError, match="BRICKRT_DEVICE=gpu in the environment is unknown: use one of auto, cpu"):
        choose_engine("auto")
    assert choose_engine("cpu").name == "cpu"
