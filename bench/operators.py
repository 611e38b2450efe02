"""Speed of single operators against ONNX Runtime, interleaved, at equal threads: what lies far behind is found so.

    python -m bench.operators [Transpose Cast …] [--threads 2] [--rounds 9] [--peers onnxruntime]

Per operator: milliseconds (median), and the peer's time over ours (median, min, max; above 1 brickrt is faster), with
how far outputs are apart; at the end the geometric mean. The cases are those of `operator_cases.py`.
"""

from __future__ import annotations

import argparse

from bench.operator_cases import TimedOperator, operator_cases
from brickrt.compare.comparison import make_peers
from brickrt.compare.difference import difference
from brickrt.compare.interleave import PAUSE, Spread, geometric_mean, ratios, turns
from brickrt.compare.peers import OURS, ours
from brickrt.runtime.session.runtime import Runtime

WIDTH = 76


def measure(case: TimedOperator, asked: argparse.Namespace) -> tuple[str, list[float]]:
    """A line of text about an operator, and the median ratios to the peers that run it."""
    runtime = Runtime(case.model, device="cpu", threads=asked.threads)
    mine = ours(runtime, case.feeds)
    others, left_out = make_peers(case.model, case.feeds, asked.threads, asked.peers.split(","))
    outputs = mine.run()
    apart = {peer.name: difference(outputs, peer.run())["max_rel_error"] for peer in others}
    times = turns([mine, *others], asked.rounds, PAUSE)
    found = ratios(times, OURS)
    peers = [f"{name} ×{r.median:.2f} ({r.min:.2f}–{r.max:.2f}) error {apart[name]:.0e}" for name, r in found.items()]
    peers += [f"{name} {why[:40]}" for name, why in left_out.items()]
    line = f"{case.name[:WIDTH]:{WIDTH}} {Spread.of(times[OURS]).median:9.3f} ms  {'  '.join(peers)}"
    return line, [r.median for r in found.values()]


def main() -> None:
    """Parses the command line, measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("operators", nargs="*")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--peers", default="onnxruntime")
    asked = parser.parse_args()
    medians: list[float] = []
    for case in operator_cases(set(asked.operators)):
        line, found = measure(case, asked)
        medians += found
        print(line, flush=True)
    if medians:
        print(f"×{geometric_mean(medians):.2f} is the geometric mean of {len(medians)} ratios")


if __name__ == "__main__":
    main()
