"""One network on brickrt and its peers: times, ratios, how far outputs are apart, and the roofline."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from brickrt.compare.difference import compares_nothing, difference
from brickrt.compare.interleave import PAUSE, Spread, geometric_mean, ratios, turns
from brickrt.compare.peers import OURS, PEERS, ComparedEngine, Feeds, Model, lacking, ours
from brickrt.compare.roofline import Roofline, roofline
from brickrt.plan.device.device_spec import DeviceSpec
from brickrt.runtime.cpu.calibrate.calibration import measured
from brickrt.runtime.progress import Progress
from brickrt.runtime.session.runtime import Runtime


@dataclass(frozen=True)
class Comparison:
    """What `compare` found: `ms` by engine, `ratios` (the peer's time over brickrt's) and `differences` by peer.

    A difference is the largest one between outputs, as a share of the peer's largest output value; `nonfinite` counts
    elements that are not finite on either side, by peer, and `unchecked` has the peers with no others.
    `device` is what the plan was made for, `left_out` has the peers that could not run, and why.
    """

    network: str
    shapes: dict[str, list[int]]
    threads: int
    strategy: str
    device: DeviceSpec
    ms: dict[str, Spread]
    ratios: dict[str, Spread]
    differences: dict[str, float]
    left_out: dict[str, str]
    roofline: Roofline
    nonfinite: dict[str, int] = field(default_factory=dict)
    unchecked: tuple[str, ...] = ()

    @property
    def best(self) -> str | None:
        """The name of the fastest peer; None where there is none."""
        return min(self.ratios, key=lambda name: self.ratios[name].median, default=None)

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "network": self.network,
            "shapes": self.shapes,
            "threads": self.threads,
            "strategy": self.strategy,
            "ms": _dicts(self.ms),
            "ratios": _dicts(self.ratios),
            "best_peer": self.best,
            "ratio_to_best": self.ratios[self.best].median if self.best else None,
            "differences": self.differences,
            "nonfinite": self.nonfinite,
            "unchecked": list(self.unchecked),
            "left_out": self.left_out,
            "roofline": self.roofline.to_dict(self.ms[OURS].median),
        }


def compare(
    name: str,
    model: Model,
    feeds: Feeds,
    runtime: Runtime,
    peers: Sequence[str] = tuple(PEERS),
    rounds: int = 11,
    pause: float = PAUSE,
    progress: Progress | None = None,
) -> Comparison:
    """Times `runtime`, which has `model` loaded, and the peers in turns, all with the runtime's number of threads."""
    others, left_out = make_peers(model, feeds, runtime.threads, peers)
    mine = ours(runtime, feeds)
    outputs = mine.run()
    device = runtime.plan.plans[0].device
    bound = roofline(runtime.plan, measured(device), runtime.threads)
    found = {peer.name: difference(outputs, peer.run()) for peer in others}
    times = turns([mine, *others], rounds, pause, progress=progress)
    return Comparison(
        network=name,
        shapes={key: list(array.shape) for key, array in feeds.items()},
        threads=runtime.threads,
        strategy=runtime.strategy,
        device=device,
        ms={key: Spread.of(each) for key, each in times.items()},
        ratios=ratios(times, OURS),
        differences={key: each["max_rel_error"] for key, each in found.items()},
        left_out=left_out,
        roofline=bound,
        nonfinite={key: int(each["nonfinite"]) for key, each in found.items() if each["nonfinite"]},
        unchecked=tuple(key for key, each in found.items() if compares_nothing(each)),
    )


def make_peers(
    model: Model, feeds: Feeds, threads: int, names: Sequence[str]
) -> tuple[list[ComparedEngine], dict[str, str]]:
    """The peers of these names that run the model, each having run once; and by name why the others do not."""
    made: list[ComparedEngine] = []
    left_out: dict[str, str] = {}
    for name in names:
        why = lacking(name)
        if why is None:
            try:
                made.append(PEERS[name](model, feeds, threads))
                made[-1].run()
                continue
            except Exception as e:  # each peer has its own ways to fail
                why = f"does not run this model: {' '.join(str(e).split())[:200] or type(e).__name__}"
                made = [peer for peer in made if peer.name != name]
        left_out[name] = why
    return made, left_out


def mean_ratio(comparisons: Sequence[Comparison]) -> float | None:
    """Geometric mean of the ratios to each network's fastest peer; None where there was no peer."""
    return geometric_mean(c.ratios[c.best].median for c in comparisons if c.best)


def _dicts(spreads: Mapping[str, Spread]) -> dict[str, dict[str, float]]:
    return {name: spread.to_dict() for name, spread in spreads.items()}
