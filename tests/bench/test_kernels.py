"""All CUDA kernels of the zoo compile without spilling registers; what the script says of them."""

import importlib.util
import json
import sys
from pathlib import Path

import pytest

from brickrt import zoo
from brickrt.bench.kernels import Figures, figures, functions_of
from brickrt.graph.errors import BrickError
from brickrt.plan.device import device_named
from brickrt.runtime.cuda.compile import compile_module

SCRIPT = Path(__file__).parents[2] / "bench" / "gpu" / "kernels.py"


@pytest.fixture(scope="module")
def script():
    spec = importlib.util.spec_from_file_location("gpu_kernels", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def compiler():
    try:
        compile_module('extern "C" __global__ void nothing() {}\n', "sm_80")
    except BrickError as e:
        pytest.skip(str(e))


CASES = [("h200", "fp32", zoo.names()), ("a100", "tf32", zoo.names()), ("h200", "fp16", ["mobilenetv2", "vit-s16"])]


@pytest.mark.timeout(1800)
@pytest.mark.parametrize(("device", "precision", "networks"), CASES, ids=lambda value: str(value)[:4])
def test_kernels_compile_and_none_spills_without_a_reason(device, precision, networks, script, compiler):
    spec = device_named(device)
    used = [one for name in networks for one in functions_of(zoo.build(name), spec, precision)]
    found = figures(used, spec.isa, threads=1)
    assert len(found) > 20 and all(0 < one.registers <= 255 for one in found)
    assert [f"{one.label} spills {one.spills} bytes" for one in script.spilling(found)] == []


def test_the_script_writes_what_it_found(script, compiler, monkeypatch, tmp_path, capsys):
    out = tmp_path / "kernels.json"
    words = ["kernels.py", "--networks", "mobilenetv2", "--devices", "h200", "--precisions", "fp32", "--out", str(out)]
    monkeypatch.setattr(sys, "argv", words)
    assert script.main() == 0
    found = json.loads(out.read_text())["sm_90"]
    assert found == sorted(found, key=lambda one: (one["label"], one["name"])) and len(found) > 20
    assert any("DepthwiseConv" in one["label"] for one in found)
    assert "mobilenetv2 on h200 in fp32" in capsys.readouterr().out


def test_a_kernel_that_spills_needs_a_reason(script, monkeypatch):
    found = [Figures("a", "Some [1]", 255, 0, 8, 16), Figures("b", "Other [2]", 32, 0, 0, 0)]
    assert script.spilling(found) == found[:1]
    monkeypatch.setattr(script, "allowed", lambda: {"Some [1]": "it is rare"})
    assert script.spilling(found) == []


def test_every_kernel_in_the_list_has_a_reason(script):
    assert all(label and reason for label, reason in script.allowed().items())
