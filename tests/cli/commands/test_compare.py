"""`brickrt compare`: two reports of one model."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.cli_models import told


def test_two_reports_side_by_side(call, models, tmp_path):
    pages = [tmp_path / "layerwise.html", tmp_path / "memoized.html"]
    for page in pages:
        words = ("run", models / "conv.onnx", "--random", "--shape", "x=1,3,8,8", "--strategy", page.stem)
        assert call(*words, "--report", page).code == 0
    called = call("compare", *pages, "--html", tmp_path / "both.html")
    assert called.code == 0, called.err
    assert "of worker time" in called.out and called.out.splitlines()[-1].endswith("both.html")
    assert max(map(len, called.out.splitlines()[:-1])) <= 80
    assert (tmp_path / "both.html").read_text("utf-8").startswith("<!doctype html>")
    found = told(call("compare", *pages, "--json"))
    assert sum(each["first_us"] for each in found["layers"]) == pytest.approx(found["first"]["busy_us"])
    assert found["layers"][0]["second"].endswith(("memoized", "layerwise"))
    assert call("compare", *pages, "--html", pages[1]).code == 2


def test_a_plan_is_no_run(call, models, tmp_path):
    page = tmp_path / "plan.html"
    assert call("plan", models / "conv.onnx", "--html", page).code == 0
    called = call("compare", page, page)
    assert called.code == 2 and "is a plan, without times" in called.err


def test_a_run_band_by_band_has_no_layers(call, models, tmp_path):
    np.save(tmp_path / "x.npy", np.zeros((1, 3, 8, 8), np.float32))
    words = ("--input", tmp_path / "x.npy", "--output", tmp_path / "y.npy", "--max-memory", "64GiB")
    page = tmp_path / "bands.html"
    assert call("run", models / "conv.onnx", *words, "--report", page).code == 0
    called = call("compare", page, page)
    assert called.code == 2 and "is of a run band by band, without times of layers" in called.err
