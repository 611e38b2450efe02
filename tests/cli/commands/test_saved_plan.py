"""Plans in files: what one process saved another runs, to the same bits; what does not fit is refused in one line."""

from __future__ import annotations

import json
import os

import numpy as np
import onnx
import pytest

import brickrt
from brickrt.runtime.cache.saved_plan import _digest
from tests.support.programs import forks


@pytest.fixture
def saved(call, models, tmp_path):
    """The plan of conv.onnx for x [1, 3, 8, 8], by strategy and brick that nobody would take by default."""
    asked = "--shape", "x=1,3,8,8", "--strategy", "memoized", "--brick", "4"
    called = call("plan", models / "conv.onnx", *asked, "--output", tmp_path / "plan.json")
    assert called.code == 0, called.err
    return tmp_path / "plan.json"


def test_another_process_computes_the_same_bits(models, saved, tmp_path):
    x = np.random.default_rng(0).standard_normal((1, 3, 8, 8)).astype(np.float32)
    np.save(tmp_path / "x.npy", x)
    rt = brickrt.Runtime(models / "conv.onnx", device="cpu", strategy="memoized", brick=4)
    want = rt.execute({"x": x})["y"]
    words = "run", models / "conv.onnx", "--input", tmp_path / "x.npy", "--output", tmp_path / "y.npy", "--plan", saved
    ran = forks.run(["-m", "brickrt", *words, "--device", "cpu", "--json"])
    assert ran.returncode == 0, ran.stderr
    assert np.load(tmp_path / "y.npy").tobytes() == want.tobytes()
    again = brickrt.Runtime(models / "conv.onnx", device="cpu", plan=saved)
    assert again.execute({"x": x})["y"].tobytes() == want.tobytes()
    assert [plan.subgraphs for plan in again.plans] == [plan.subgraphs for plan in rt.plans]


def edited(path, change, sealed=True):
    """The file with a change of its content; `sealed` as whoever knows the digest would write it."""
    content = json.loads(path.read_text())
    digest = content.pop("digest")
    change(content)
    path.write_text(json.dumps(content | {"digest": _digest(content) if sealed else digest}))


REFUSED = {
    "shape": (["--shape", "x=2,3,8,8"], None, "is for inputs x"),
    "strategy": (["--strategy", "padded"], None, "leave them out"),
    "device": ([], lambda c: c["device"].update(kind="cuda"), "is for a device of kind cuda, this is cpu"),
    "isa": ([], lambda c: c["device"].update(isa="other"), "(other, "),
    "precision": ([], lambda c: c["options"].update(precision="fp16"), "is for precision fp16, asked for is fp32"),
    "code": ([], lambda c: c.update(code="", brickrt="0.0.9"), "brickrt 0.0.9"),
    "fields": ([], lambda c: c["device"].update(cores="many"), "cores 'many'"),
    "lanes": ([], lambda c: c["device"].update(lanes=c["device"]["lanes"] + 1), "lanes, "),
    "speeds": ([], lambda c: c["device"]["bandwidth"].update(l2=[]), "bandwidth []"),
    "speed": ([], lambda c: c["device"].update(margin=float("nan")), "margin nan"),
    "inputs": ([], lambda c: c.update(inputs=[]), "inputs []"),
    "exact": ([], lambda c: c["options"].update(exact="no"), "exact 'no'"),
    "subgraphs": ([], lambda c: c["subgraphs"].pop(), "is damaged"),
    "option": ([], lambda c: c["options"].update(strategy="best"), "is damaged (strategy 'best'"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_does_not_fit_is_refused_in_one_line(call, models, saved, case):
    words, change, told = REFUSED[case]
    if change:
        edited(saved, change)
    shape = [] if case == "shape" else ["--shape", "x=1,3,8,8"]
    called = call("run", models / "conv.onnx", "--random", *shape, *words, "--plan", saved, "--device", "cpu")
    assert called.code == 2 and told in called.err and len(called.err.strip().splitlines()) == 1, called.err


def test_other_models_and_files_are_refused(call, models, saved, tmp_path):
    proto = onnx.load(models / "conv.onnx")
    proto.graph.node[-1].op_type = "Sigmoid"
    onnx.save(proto, tmp_path / "other.onnx")

    def refused(model, plan) -> str:
        called = call("run", model, "--random", "--shape", "x=1,3,8,8", "--plan", plan, "--device", "cpu")
        assert called.code == 2 and len(called.err.strip().splitlines()) == 1, called.err
        return called.err

    assert "another graph" in refused(tmp_path / "other.onnx", saved)
    assert "cannot be read" in refused(models / "conv.onnx", tmp_path / "no.json")
    edited(saved, lambda c: c.update(brickrt="9"), sealed=False)
    assert "was changed" in refused(models / "conv.onnx", saved)
    saved.write_text(saved.read_text()[:100])
    assert "is no plan" in refused(models / "conv.onnx", saved)


def test_a_plan_that_cannot_be_written_is_refused(call, models, tmp_path):
    (tmp_path / "loop").symlink_to("loop")
    for path in ("no/such/plan.json", models / "conv.onnx", tmp_path, tmp_path / "loop" / "plan.json"):
        called = call("plan", models / "conv.onnx", "--save", path)  # as scripts from before --output have it
        assert called.code == 2 and called.out == "" and str(path) in called.err


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no pipes with names")
def test_what_is_no_file_stays(call, models, tmp_path):
    """A file that took the place of /dev/null would break the machine."""
    os.mkfifo(tmp_path / "pipe")
    called = call("plan", models / "conv.onnx", "--output", tmp_path / "pipe")
    assert called.code == 2 and "is a device or a pipe" in called.err and (tmp_path / "pipe").is_fifo()
