"""Changes models at random for as long as asked, and keeps those that go wrong as seeds, one for each place."""

from __future__ import annotations

import argparse
import hashlib
import re
import time
from collections import Counter
from pathlib import Path

import onnx
from google.protobuf.message import DecodeError

from tests.fuzz.base_models import base_model
from tests.fuzz.case_runner import CaseRunner
from tests.fuzz.mutations import mutated
from tests.fuzz.other_runtimes import OTHERS
from tests.fuzz.run_case import Case

SEEDS = Path(__file__).parent / "seeds"
NAMES = r"[0-9]+|'[^']*'"
FINE = frozenset(("ran", "refused"))


def case(seed: int) -> Case:
    """Broken model number `seed`. One in three goes to the CPU engine, the others to NumPy, which is sooner there."""
    return mutated(seed, base_model(seed), base_model(31 * seed + 7)), "cpu" if seed % 3 == 0 else "reference"


def place(word: str, text: str, model: bytes) -> str:
    """Where a case went wrong, the same for cases that go wrong alike: the first error and its line of code, or, where
    there is no error, the operators."""
    lines = text.partition("\nThe above exception")[0].strip().splitlines()
    files = [line.strip() for line in lines if line.strip().startswith("File ")]
    if word in ("broke", "hung") and files:
        return f"{word}: {files[-1] if files else ''} {re.sub(NAMES, 'N', lines[-1])[:60]}"
    try:
        nodes = onnx.ModelProto.FromString(model).graph.node
    except DecodeError:
        return word
    return f"{word}: {' '.join(sorted({node.op_type for node in nodes}))}"


def search(minutes: float, first: int, keep: Path) -> Counter[str]:
    """Runs cases from number `first` on; what goes wrong in a new place is written to the folder `keep`."""
    end, seed, seen = time.monotonic() + 60 * minutes, first, Counter[str]()
    with CaseRunner(compared=True) as worker:
        while time.monotonic() < end:
            one = case(seed)
            word, text = worker.run(one)
            where = word if word in FINE else place(word, text, one[0])
            seen[where] += 1
            if word not in FINE and seen[where] == 1:
                file = keep / f"{word}-{hashlib.sha256(one[0]).hexdigest()[:10]}-{one[1]}.onnx"
                file.write_bytes(one[0])
                print(f"case {seed} {where}\n{text}\n  kept as {file}", flush=True)
            seed += 1
            if seed % 1000 == 0:
                print(f"{seed - first} cases, {sum(seen[word] for word in FINE)} of them fine", flush=True)
    print(f"{seed - first} cases from {first} on, {worker.peak >> 20} MiB at most; {_summary(worker.compared)}")
    return seen


def _summary(compared: Counter[str]) -> str:
    """How many cases were compared with each other runtime, and what became of the others."""
    asked = {name: {text: n for text, n in compared.items() if text.startswith(name)} for name in OTHERS}
    parts = []
    for name, told in asked.items():
        done = sum(n for text, n in told.items() if text.endswith(("agrees", "differs")))
        rest = ", ".join(f"{n} {text.removeprefix(name).strip()}" for text, n in Counter(told).most_common())
        parts.append(f"compared with {name}: {done} of {sum(told.values())} ({rest})")
    others = {text: n for text, n in compared.items() if not text.startswith(tuple(OTHERS))}
    return "; ".join([*parts, *(f"{n} {text}" for text, n in others.items())])


def main() -> int:
    """The command; 1 where anything went wrong."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=0, help="number of the first case")
    parser.add_argument("--keep", type=Path, default=SEEDS, help="folder for what goes wrong")
    asked = parser.parse_args()
    asked.keep.mkdir(parents=True, exist_ok=True)
    seen = search(asked.minutes, asked.seed, asked.keep)
    for where, count in seen.most_common():
        print(f"{count:6d} {where}")
    return 0 if set(seen) <= FINE else 1


if __name__ == "__main__":
    raise SystemExit(main())
