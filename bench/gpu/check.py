"""Is everything right on this GPU? The zoo, in all strategies, launches and precisions, against the reference engine.

    python bench/gpu/check.py [--networks …] [--runs 1000] [--seconds 500]

Small sizes, since the reference is NumPy. fp32 must be within 1e-4 of the reference relative to the largest output,
tf32 and fp16 within 1e-2, bf16 within 5e-2. Then the persistent kernel runs `--runs` times: no hang, the same bits each
time. Exit code 1 if anything is off.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np
from common import CHECKED, Clock, Table, each, options, random_feeds, small

from brickrt.bench.difference import difference
from brickrt.runtime.devices import choose_engine
from brickrt.runtime.runtime import Runtime

TOLERANCE = {"fp32": 1e-4, "tf32": 1e-2, "fp16": 1e-2, "bf16": 5e-2}
STRATEGIES = ("layerwise", "padded", "memoized", "auto")
LAUNCHES = ("streams", "graph", "persistent")


def combinations(precisions: str, strategies: str, launches: str) -> Iterator[tuple[str, str, str]]:
    """All strategies and launches in fp32; the other precisions in the last launch only."""
    ways = list(each(launches))
    for precision in each(precisions):
        yield from product([precision], each(strategies), ways if precision == "fp32" else ways[-1:])


def error_of(model: Any, feeds: Any, expected: list[np.ndarray], how: tuple[str, str, str]) -> tuple[float, str]:
    """The largest error relative to the largest output, and what went wrong, if anything."""
    precision, strategy, launch = how
    try:
        runtime = Runtime(model, device="cuda", precision=precision, strategy=strategy, launch=launch)
        outputs = list(runtime.execute(feeds).values())
    except Exception as e:  # the driver, CuPy and cuDNN have errors of their own
        return float("inf"), f"{type(e).__name__}: {' '.join(str(e).split())[:300]}"
    return difference(outputs, expected)["max_rel_error"], ""


def main() -> int:
    parser = options(__doc__, networks=",".join(CHECKED))
    parser.add_argument("--precisions", default="fp32,tf32,fp16,bf16")
    parser.add_argument("--strategies", default=",".join(STRATEGIES))
    parser.add_argument("--launches", default=",".join(LAUNCHES))
    parser.add_argument("--runs", type=int, default=1000)
    asked = parser.parse_args()
    table, clock = Table("cuda-check", choose_engine("cuda").spec, asked, tolerance=TOLERANCE), Clock(asked.seconds)
    bad = 0
    for name in each(asked.networks):
        if not clock.has_time(name):
            bad += 1  # what was not checked is not right
            continue
        model = small(name)
        feeds = random_feeds(model)
        expected = list(Runtime(model, device="reference").execute(feeds).values())
        for how in combinations(asked.precisions, asked.strategies, asked.launches):
            error, why = error_of(model, feeds, expected, how)
            good = error <= TOLERANCE[how[0]]
            bad += not good
            row = dict(zip(("precision", "strategy", "launch"), how)) | {"network": name, "error": error, "why": why}
            table.add(row, f"{'ok ' if good else 'BAD'} {name:13} {' '.join(how):26} {error:.1e} {why}")
        if asked.runs:
            bad += not repeated(model, feeds, name, asked.runs, table)
    return 1 if bad else 0


def repeated(model: Any, feeds: Any, name: str, runs: int, table: Table) -> bool:
    """Whether the persistent kernel gives the same bits every time."""
    changed, why = 0, ""
    try:
        runtime = Runtime(model, device="cuda", strategy="memoized", launch="persistent")
        first = next(iter(runtime.execute(feeds).values())).tobytes()
        changed = sum(next(iter(runtime.execute(feeds).values())).tobytes() != first for _ in range(runs))
    except Exception as e:
        why = f"{type(e).__name__}: {' '.join(str(e).split())[:300]}"
    good = changed == 0 and not why
    text = f"{'ok ' if good else 'BAD'} {name:13} {runs} persistent runs, {changed} with other bits {why}"
    table.add({"network": name, "runs": runs, "changed": changed, "why": why}, text)
    return good


if __name__ == "__main__":
    sys.exit(main())
