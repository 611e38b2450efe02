"""`brickrt doctor`."""

from __future__ import annotations

import os

from brickrt.cli.commands import doctor
from tests.support.cli_models import told


def test_doctor(call):
    report = told(call("doctor", "--json"))
    cpu = report["devices"][0]
    assert cpu["kind"] == "cpu" and cpu["cores"] >= 1 and cpu["l2"] > 0 and cpu["isa"]
    assert report["caches"][0]["folder"].startswith(os.environ["BRICKRT_CACHE_DIR"])
    assert {"numpy", "onnx", "llvmlite"} <= set(report["libraries"])
    assert "devices" in call("doctor").out


def test_doctor_measures_the_machine(call, monkeypatch):
    assert "BRICKRT_CALIBRATE=0" in call("doctor").out
    monkeypatch.setenv("BRICKRT_CALIBRATE", "1")
    speeds = told(call("doctor", "--calibrate", "--json"))["devices"][0]["speeds"]
    assert speeds["peak_gflops_per_core"] > 0 and speeds["bandwidth"]["l2"] > 0
    assert speeds == told(call("doctor", "--json"))["devices"][0]["speeds"]
    assert "GFLOP/s a core" in call("doctor").out


def test_doctor_says_how_to_get_what_is_missing(call, monkeypatch):
    found = {"numpy": "2.0", "cupy-cuda13x": "14", "cuda-bindings": "13", "nvidia-cudnn-frontend": "1"}
    monkeypatch.setattr(doctor, "installed_version", found.get)
    missing = told(call("doctor", "--json"))["missing"]
    extras = [extra for extra in doctor.EXTRAS if not extra.startswith("cuda")]
    assert [entry["get"] for entry in missing] == [f'pip install "brickrt[{extra}]"' for extra in extras]
    found.clear()
    assert 'brickrt[cuda12]"' in call("doctor").out


def test_doctor_asks_the_driver(call, tmp_path, monkeypatch):
    tool = tmp_path / "nvidia-smi"
    tool.write_text("#!/bin/sh\necho 'NVIDIA Example, 1024, 550.1, 9.0'\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    gpu = told(call("doctor", "--json"))["devices"][1]
    assert gpu == {
        "kind": "cuda",
        "name": "NVIDIA Example",
        "memory": 1 << 30,
        "driver": "550.1",
        "compute_capability": "9.0",
    }
    tool.write_text("#!/bin/sh\nexit 9\n")
    assert "unknown" in call("doctor").out
