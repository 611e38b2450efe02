"""`brickrt tune`: what it prints, that later commands use what it found, and what it refuses."""

from __future__ import annotations

import pytest

from brickrt.runtime.tuning.measured_choices import MeasuredChoices
from brickrt.runtime.tuning.parts import measured_faster
from tests.support.cli_models import told


@pytest.fixture(autouse=True)
def _own_caches(monkeypatch, tmp_path):
    monkeypatch.setenv("BRICKRT_CACHE_DIR", str(tmp_path))


def test_later_commands_use_what_was_tuned(call, models, monkeypatch):
    """Whatever is the fastest here: that it was measured stands in the plan."""
    monkeypatch.setattr(MeasuredChoices, "told", lambda self, subgraphs: tuple(map(measured_faster, subgraphs)))
    words = models / "conv.onnx", "--shape", "x=2,3,8,8"
    report = told(call("tune", *words, "--seconds", 2, "--json"))
    (part,) = report["parts"]
    assert report["before_ms"] > 0 and report["inputs"] == {"x": [2, 3, 8, 8]} and part["tried"]
    assert all(s["why"].startswith("measured faster: ") for s in told(call("plan", *words, "--json"))["plan"])
    ran = told(call("run", *words, "--random", "--json", "--verify"))
    assert all(s["why"].startswith("measured faster: ") for s in ran["plan"])
    others = told(call("plan", *words, "--exact", "--json"))["plan"]
    assert others and not any("measured" in s["why"] for s in others)


def test_a_table_of_what_was_tried(call, models):
    called = call("tune", models / "conv.onnx", "--seconds", 1, "--threads", 1)
    assert called.code == 0, called.err
    assert "over as modelled" in called.out and "taken    " in called.out and "a run    " in called.out
    assert called.err.count("\n") == 1 and "x[0] (N)" in called.err


@pytest.mark.parametrize(
    ("words", "named"),
    [
        ("absent.onnx", "absent.onnx"),
        ("{models}/conv.onnx --seconds 0", "--seconds 0"),
        ("{models}/conv.onnx --seconds -3", "--seconds"),
        ("{models}/conv.onnx --seconds nan", "--seconds nan"),
        ("{models}/conv.onnx --seconds soon", "--seconds"),
        ("{models}/conv.onnx --shape y=1,2", "--shape"),
        ("{models}/conv.onnx --shape x=1,4,8,8", "--shape x=1,4,8,8"),
        ("{models}/conv.onnx --threads 0", "threads"),
        ("", "MODEL"),
    ],
)
def test_errors_take_one_line(call, models, words, named):
    called = call("tune", *words.format(models=models).split())
    assert called.code == 2 and called.out == "" and called.err.count("\n") == 1 and named in called.err
