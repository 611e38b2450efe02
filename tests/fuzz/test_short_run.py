"""The mutator for a few seconds, always with the same cases, and the models that it found to go wrong before."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.fuzz.base_models import own_models
from tests.fuzz.case_runner import CaseRunner
from tests.fuzz.mutations import mutated
from tests.fuzz.run_case import outcome

SEEDS = sorted((Path(__file__).parent / "seeds").glob("*.onnx"))
CASES = 120


def test_models_to_start_from_run():
    assert [outcome((m.SerializeToString(), "reference")) for m in own_models()] == [("ran", "")] * len(own_models())


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


def test_a_case_that_hangs_is_told_of_and_the_next_one_runs():
    loop = own_models()[2]
    loop.graph.initializer[0].raw_data = (1 << 40).to_bytes(8, "little")
    with CaseRunner(seconds=1) as one:
        assert one.run((loop.SerializeToString(), "reference"))[0] == "hung"
        assert one.run((b"no model", "reference"))[0] == "refused"
