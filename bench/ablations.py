"""What merging is worth (BrickDL §4.5, on the CPU): layers merged, brick edges, padded, memoized and layerwise; the
paper's rules in place of the cost model (brickdl); and WELDER's ablation: unfused, then elementwise functions fused
(layerwise), then all (auto).

    python bench/ablations.py [--networks nafnet:256,mobilenetv2] [--vary rules,layers,bricks] [--out FILE.json]
    python bench/ablations.py --check [--networks …]    is auto within 5 % of the best forced strategy?

All variants of a network run in turns in one process. Per variant: milliseconds, the time of layerwise over it (above 1
the variant is faster), what the model expected, tasks, elements computed again, modelled bytes beyond each level of
caches, and bytes measured by perf, where it counts.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from networks import ELEVEN
from traffic import measured_bytes, why_not

from brickrt import zoo
from brickrt.compare.interleave import Spread, ratios, turns
from brickrt.compare.machine import machine
from brickrt.compare.peers import ComparedEngine, Feeds
from brickrt.compare.roofline import roofline
from brickrt.graph.onnx_import.source import SourceGraph, load
from brickrt.plan.device.device_spec import host_device
from brickrt.runtime.cpu.calibrate.calibration import calibrated, measured
from brickrt.runtime.session.runtime import Runtime

LAYERS, BRICKS = (2, 3, 4, 6), (4, 8, 16, 32)
FORCED = ("layerwise", "padded", "memoized")
RULES = ("brickdl", "unfused")
TOLERANCE = 1.05  # of auto's time over that of the best forced strategy
PAUSE = 0.01  # seconds: only our own threads run


@dataclass(frozen=True)
class Variant:
    """A way to run a network, and the options of `Runtime` for it."""

    name: str
    options: dict[str, Any] = field(default_factory=dict)


def variants(vary: Sequence[str]) -> Iterator[Variant]:
    """Auto, the forced strategies, and what `vary` names: rules, and layers or edges of padded and memoized bricks."""
    for strategy in ("auto", *FORCED):
        yield Variant(strategy, {"strategy": strategy})
    for rules in RULES if "rules" in vary else ():
        yield Variant(rules, {"rules": rules})
    for strategy in ("padded", "memoized"):
        for n in LAYERS if "layers" in vary else ():
            yield Variant(f"{strategy}, {n} layers", {"strategy": strategy, "max_layers": n})
        for n in BRICKS if "bricks" in vary else ():
            yield Variant(f"{strategy}, bricks of {n}", {"strategy": strategy, "brick": n})


@dataclass(frozen=True)
class Prepared:
    """A variant that has run once."""

    variant: Variant
    runtime: Runtime
    feeds: Feeds

    def engine(self) -> ComparedEngine:
        """The variant as an engine that takes turns with the others."""
        return ComparedEngine(self.variant.name, lambda: [self.runtime.execute(self.feeds)])

    def figures(self, repeats: int) -> dict[str, Any]:
        """What is written about the variant beside its times."""
        stats, subgraphs = self.runtime.stats, [s for plan in self.runtime.plans for s in plan.subgraphs]
        return {
            "options": self.variant.options,
            "modelled_ms": sum(s.modelled_us for s in subgraphs) / 1e3,
            "strategies": Counter(s.strategy for s in subgraphs),
            "tasks": stats.tasks,
            "recomputed": stats.recomputed,
            "modelled_bytes": dict(stats.level_bytes),
            "measured_bytes": measured_bytes(lambda: self.runtime.execute(self.feeds), repeats),
        }


def prepare(source: SourceGraph, feeds: Feeds, asked: argparse.Namespace, wanted: Sequence[Variant]) -> list[Prepared]:
    """The variants of a network, each with a runtime of its own that has run once."""
    made = [Prepared(v, Runtime(source, device="cpu", threads=asked.threads, **v.options), feeds) for v in wanted]
    for one in made:
        one.runtime.execute(feeds)
    return made


def named(text: str) -> tuple[str, Any]:
    """`nafnet:256` or `resnet34-3d:16x56x56` as a name and a size."""
    name, _, size = text.partition(":")
    extents = tuple(int(part) for part in size.split("x")) if size else None
    return name, ELEVEN.get(name) if extents is None else extents[0] if len(extents) == 1 else extents


def ablate(name: str, size: Any, asked: argparse.Namespace) -> dict[str, Any]:
    """Figures of all variants of one network, and the roofline of auto's plan."""
    model = zoo.build(name, batch=asked.batch, size=size)
    made = prepare(load(model), zoo.feeds(model), asked, list(variants(asked.vary.split(","))))
    device = made[0].runtime.plan.plans[0].device
    times = turns([one.engine() for one in made], asked.rounds, PAUSE)
    slower = ratios(times, "layerwise")
    bound = roofline(made[0].runtime.plan, measured(device), made[0].runtime.threads)
    rows = {}
    for one in made:
        key = one.variant.name
        gain = 1 / slower[key].median if key in slower else 1.0
        rows[key] = {"ms": Spread.of(times[key]).to_dict(), "over_layerwise": gain, **one.figures(asked.rounds)}
    return {
        "network": name,
        "shape": list(next(iter(made[0].feeds.values())).shape),
        "threads": made[0].runtime.threads,
        "roofline": bound.to_dict(Spread.of(times["auto"]).median),
        "variants": rows,
    }


def check(name: str, size: Any, asked: argparse.Namespace) -> dict[str, Any]:
    """Auto's time over that of the fastest forced strategy, turn by turn."""
    model = zoo.build(name, batch=asked.batch, size=size)
    made = prepare(load(model), zoo.feeds(model), asked, list(variants(())))
    times = turns([one.engine() for one in made], asked.rounds, PAUSE)
    best = min(FORCED, key=lambda key: Spread.of(times[key]).median)
    over = Spread.of([auto / forced for auto, forced in zip(times["auto"], times[best], strict=True)])
    medians = {key: Spread.of(each).median for key, each in times.items()}
    return {"network": name, "ms": medians, "best": best, "auto_over_best": over.to_dict()}


def show(row: dict[str, Any]) -> Iterator[str]:
    """Lines of text about what `ablate` found."""
    yield f"{row['network']} {'×'.join(map(str, row['shape']))}, {row['threads']} threads"
    levels = list(next(iter(row["variants"].values()))["modelled_bytes"])
    counted = list(next(iter(row["variants"].values()))["measured_bytes"])
    heads = [f"MB beyond {level}" for level in levels] + [f"{event} MB" for event in counted]
    yield f"{'':24}{'ms':>10}{'×layerwise':>12}{'modelled':>10}{'tasks':>9}" + "".join(f"{h:>18}" for h in heads)
    for name, v in row["variants"].items():
        moved = [v["modelled_bytes"][level] / 1e6 for level in levels]
        moved += [v["measured_bytes"].get(event, 0.0) / 1e6 for event in counted]
        figures = f"{v['ms']['median']:10.2f}{v['over_layerwise']:12.2f}{v['modelled_ms']:10.2f}{v['tasks']:9}"
        yield f"{name:24}{figures}" + "".join(f"{mb:18.1f}" for mb in moved)
    bound = row["roofline"]
    arithmetic, over = bound["compute_ms"], bound["over"]
    yield f"roofline {bound['bound_ms']:.2f} ms (arithmetic {arithmetic:.2f} ms); auto took {over:.2f} times that"


def show_check(row: dict[str, Any]) -> str:
    """A line of text about what `check` found."""
    times = "  ".join(f"{key} {ms:.2f} ms" for key, ms in row["ms"].items())
    over = row["auto_over_best"]
    verdict = "slower" if over["median"] > TOLERANCE else "ok"
    return f"{verdict:7}{row['network']:14} auto ×{over['median']:.3f} ({over['min']:.3f}–{over['max']:.3f})  {times}"


def main() -> int:
    """Measures or checks the networks that the command line names; 1 if a check found auto slower."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--networks", default=",".join(ELEVEN))
    parser.add_argument("--vary", default="rules,layers,bricks")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    rows = []
    if why_not() is not None and not asked.check:
        print(f"traffic is modelled only: {why_not()}")
    for name, size in map(named, asked.networks.split(",")):
        rows.append((check if asked.check else ablate)(name, size, asked))
        print(*([show_check(rows[-1])] if asked.check else show(rows[-1])), sep="\n", flush=True)
    if asked.out:
        about = {"machine": machine(calibrated(host_device())), "rounds": asked.rounds, "perf": why_not() or "counts"}
        asked.out.write_text(json.dumps({**about, "networks": rows}, indent=1) + "\n")
    offenders = [row["network"] for row in rows if asked.check and row["auto_over_best"]["median"] > TOLERANCE]
    if asked.check:
        print(f"more than {TOLERANCE - 1:.0%} slower than forced: {', '.join(offenders) or 'none'}")
    return 1 if offenders else 0


if __name__ == "__main__":
    sys.exit(main())
