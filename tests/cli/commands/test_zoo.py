"""`brickrt zoo`."""

from __future__ import annotations

import onnx

from brickrt import zoo
from tests.support.cli_models import told


def test_zoo_list(call):
    assert [entry["name"] for entry in told(call("zoo", "list", "--json"))["networks"]] == zoo.names()
    assert all(name in call("zoo", "list").out for name in zoo.names())


def test_zoo_export(call, tmp_path):
    out = tmp_path / "net.onnx"
    called = call("zoo", "export", "mobilenetv2", out, "--batch", "0", "--size", "32x64", "--seed", "3")
    assert called.code == 0 and "net.onnx" in called.out
    assert out.read_bytes() == zoo.build("mobilenetv2", 0, (32, 64), 3).SerializeToString(deterministic=True)
    onnx.checker.check_model(str(out))
    report = told(call("plan", out, "--json"))
    assert report["inputs"] == {"x": [1, 3, 32, 64]}
    assert len(report["plan"]) > 10
