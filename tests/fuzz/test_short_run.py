"""The mutator for a few seconds, always with the same cases, and the models that it found to go wrong before."""

from __future__ import annotations

import os
import time
from collections import Counter
from pathlib import Path

import numpy as np
import onnx
import pytest

from brickrt.graph import allowance
from tests.fuzz.base_models import own_models
from tests.fuzz.case_runner import MOST, CaseRunner
from tests.fuzz.mutations import mutated
from tests.fuzz.run_case import outcome
from tests.support.cpu.in_child import in_child
from tests.support.graphs.onnx_models import model, node

SEEDS = sorted((Path(__file__).parent / "seeds").glob("*.onnx"))
CASES = 120


def test_models_to_start_from_run():
    assert {outcome((m.SerializeToString(), "reference")).word for m in own_models()} == {"ran"}


@pytest.mark.parametrize("seed", SEEDS, ids=lambda path: path.stem)
def test_seeds(worker: CaseRunner, seed: Path):
    assert worker.run((seed.read_bytes(), "cpu" if "cpu" in seed.stem else "reference"))[0] in ("ran", "refused")


def test_random_changes(worker: CaseRunner):
    bases, found = own_models(), Counter[str]()
    for k in range(CASES):
        word, text = worker.run((mutated(k, bases[k % len(bases)]), "reference"))
        assert word in ("ran", "refused"), f"case {k} {word}: {text}"
        found[word] += 1
    assert min(found["ran"], found["refused"]) > CASES // 8, found


def test_a_case_that_hangs_or_takes_much_memory_is_told_of_and_the_next_runs(monkeypatch):
    monkeypatch.setenv(allowance.SECONDS, "0")
    monkeypatch.setenv(allowance.MEMORY, "0")
    with CaseRunner(seconds=1) as one:
        assert one.run((long_loop().SerializeToString(), "reference"))[0] == "hung"
        assert one.run((b"no model", "reference"))[0] == "refused"
    with CaseRunner() as one:
        assert one.run((large().SerializeToString(), "cpu"))[0] == "heavy"
        assert one.run((b"no model", "reference"))[0] == "refused" and one.peak > MOST


def test_what_is_compared_is_counted(worker: CaseRunner):
    before = worker.compared["onnxruntime agrees"]
    worker.run((own_models()[1].SerializeToString(), "reference"))
    assert worker.compared["onnxruntime agrees"] == before + 1


def large() -> onnx.ModelProto:
    return model([node("ConstantOfShape", "s", "y")], s=np.int64([300 << 20]))


def test_a_child_that_hangs_or_dies_is_told_of():
    assert in_child(lambda: 3, 1)[:2] == ("answered", 3)
    how, where, *_ = in_child(lambda: time.sleep(60), 1)
    assert how == "hung" and "time.sleep" in where
    assert in_child(lambda: os.kill(os.getpid(), 9), 1)[:2] == ("died", "exit code -9")


def test_memory_of_a_child_is_measured():
    before = in_child(lambda: 3, 1).peak
    assert in_child(lambda: np.ones(1 << 25).sum(), 5).peak > before + (1 << 27)


def long_loop() -> onnx.ModelProto:
    loop = own_models()[2]
    loop.graph.initializer[0].raw_data = (1 << 40).to_bytes(8, "little")
    return loop
