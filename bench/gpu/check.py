"""Is everything right on this GPU? The zoo, in all strategies, launches and precisions, against the reference engine.

    python bench/gpu/check.py [--networks …] [--runs 1000] [--seconds 500]

Small sizes, since the reference is NumPy. fp32 must be within 1e-4 of the reference relative to the largest output,
tf32 and fp16 within 1e-2, bf16 within 5e-2. Then the persistent kernel runs `--runs` times: no hang, the same bits each
time. Exit code 1 if anything is off.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from functools import lru_cache
from itertools import product
from typing import Any

import numpy as np
from common import CHECKED, Clock, ResultTable, each, go_on, gpu, options, random_feeds, small, spoiled, why

from brickrt.compare.difference import difference
from brickrt.runtime.session.runtime import Runtime

TOLERANCE = {"fp32": 1e-4, "tf32": 1e-2, "fp16": 1e-2, "bf16": 5e-2}
STRATEGIES = ("layerwise", "padded", "memoized", "auto")
LAUNCHES = ("streams", "dynamic", "graph", "persistent")


def combinations(precisions: str, strategies: str, launches: str) -> Iterator[tuple[str, str, str]]:
    """All strategies and launches in fp32; the other precisions in the last launch only, and so "auto", for which
    several programs are built."""
    ways = list(each(launches))
    for precision, strategy in product(each(precisions), each(strategies)):
        all_ways = precision == "fp32" and strategy != "auto"
        yield from product([precision], [strategy], ways if all_ways else ways[-1:])


def error_of(model: Any, feeds: Any, expected: list[np.ndarray], how: tuple[str, str, str]) -> tuple[float, str]:
    """The largest error relative to the largest output, and what went wrong, if anything."""
    precision, strategy, launch = how
    try:
        runtime = Runtime(model, device="cuda", precision=precision, strategy=strategy, launch=launch)
        outputs = list(runtime.execute(feeds).values())
    except Exception as e:  # the driver, CuPy and cuDNN have errors of their own
        return float("inf"), why(e)
    return difference(outputs, expected)["max_rel_error"], ""


def main() -> int:
    """Checks the networks that the command line names; 1 if anything is off."""
    parser = options(__doc__, networks=",".join(CHECKED))
    parser.add_argument("--precisions", default="fp32,tf32,fp16,bf16")
    parser.add_argument("--strategies", default=",".join(STRATEGIES))
    parser.add_argument("--launches", default=",".join(LAUNCHES))
    parser.add_argument("--runs", type=int, default=1000)
    asked = parser.parse_args()
    table, clock = ResultTable("cuda-check", gpu().spec, asked, tolerance=TOLERANCE), Clock(asked.seconds)
    ways = [*combinations(asked.precisions, asked.strategies, asked.launches), *([None] if asked.runs else [])]
    rows = list(product(each(asked.networks), ways))
    bad = 0
    for k, (name, how) in enumerate(rows[asked.skip :], asked.skip + 1):
        if not clock.has_time(f"{name} {' '.join(how or ('again',))}"):
            return 1  # what was not checked is not right
        good = repeated(name, asked.runs, table) if how is None else checked(name, how, table)
        bad += not good
        if not good and k < len(rows) and spoiled():
            bad += go_on(k, clock)
            break
    return 1 if bad else 0


@lru_cache(1)
def references(name: str) -> tuple[Any, Any, list[np.ndarray]]:
    """A network, its inputs, and the outputs of the reference engine."""
    model = small(name)
    feeds = random_feeds(model)
    return model, feeds, list(Runtime(model, device="reference").execute(feeds).values())


def checked(name: str, how: tuple[str, str, str], table: ResultTable) -> bool:
    """Whether a network is computed right in one way."""
    error, wrong = error_of(*references(name), how)
    good = error <= TOLERANCE[how[0]]
    row = dict(zip(("precision", "strategy", "launch"), how)) | {"network": name, "error": error, "why": wrong}
    table.add(row, f"{'ok ' if good else 'BAD'} {name:13} {' '.join(how):26} {error:.1e} {wrong}")
    return good


def repeated(name: str, runs: int, table: ResultTable) -> bool:
    """Whether the persistent kernel gives the same bits every time."""
    changed, wrong = 0, ""
    model, feeds, _ = references(name)
    try:
        runtime = Runtime(model, device="cuda", strategy="memoized", launch="persistent")
        first = next(iter(runtime.execute(feeds).values())).tobytes()
        changed = sum(next(iter(runtime.execute(feeds).values())).tobytes() != first for _ in range(runs))
    except Exception as e:
        wrong = why(e)
    good = changed == 0 and not wrong
    text = f"{'ok ' if good else 'BAD'} {name:13} {runs} persistent runs, {changed} with other bits {wrong}"
    table.add({"network": name, "runs": runs, "changed": changed, "why": wrong}, text)
    return good


if __name__ == "__main__":
    sys.exit(main())
