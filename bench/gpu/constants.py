"""What to write in place of the cost model's nominal figures, by what `first.py` measured: needs no GPU.

    python -m bench.gpu.constants FOLDER

Prints a line per figure: where it is, what was assumed and measured, and the number to write there.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from brickrt.plan.cost import constants as model
from brickrt.plan.device.device_spec import DeviceSpec
from brickrt.runtime.cuda.driver.device_spec import MEMORY_SHARE, SHARED_BYTES

DRIVER, PRESETS = "brickrt/runtime/cuda/driver/device_spec.py", "brickrt/plan/device/device_spec.py"
MODEL = "brickrt/plan/cost/constants.py"
# Where a measured figure is written; of bandwidths, which are products of clocks and sizes, a factor.
PLACES: dict[str, tuple[str, float | None]] = {
    "bandwidth shared": (f"{DRIVER}: SHARED_BYTES", SHARED_BYTES),
    "bandwidth l2": (f"{DRIVER}: RATES, bytes that L2 gives, times", 1.0),
    "bandwidth memory": (f"{DRIVER}: MEMORY_SHARE", MEMORY_SHARE),
    "task_overhead_us": (f"{PRESETS}: _gpu", None),
    "call_overhead_us": (f"{PRESETS}: _gpu", None),
    "FUSED_TASK_US": (f"{MODEL}", None),
}
assert hasattr(model, "FUSED_TASK_US") and {"task_overhead_us", "call_overhead_us"} <= set(DeviceSpec.__annotations__)


def measured(rows: Iterable[Mapping[str, Any]]) -> dict[str, tuple[float, float]]:
    """What was assumed and what was measured, by name, of rows that went well."""
    good = (row for row in rows if row.get("step") == "constants" and row.get("status") == "ok")
    pairs = ((name, row[name]) for row in good for name in PLACES if name in row)
    return {name: (float(pair["nominal"]), float(pair["measured"])) for name, pair in pairs}


def advice(found: Mapping[str, tuple[float, float]]) -> Iterator[str]:
    """A line per figure; of those that are missing too."""
    for name, (place, scale) in PLACES.items():
        if name not in found:
            yield f"{name}: not measured"
            continue
        nominal, seen = found[name]
        number = seen if scale is None else scale * seen / nominal
        yield f"{name}: {nominal:.4g} assumed, {seen:.4g} measured; {place} = {number:.3g}"


def main() -> int:
    """Reads speeds.jsonl of a folder of results; 1 where something was not measured."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, metavar="FOLDER")
    file = parser.parse_args().folder / "speeds.jsonl"
    if not file.exists():
        print(f"{file} is not there: run python -m bench.gpu.first first", file=sys.stderr)
        return 2
    found = measured(map(json.loads, file.read_text().splitlines()))
    print("\n".join(advice(found)))
    return int(len(found) < len(PLACES))


if __name__ == "__main__":
    sys.exit(main())
